// SPDX-License-Identifier: Apache-2.0
// MPI's own all-reduce, for network.py to compile with each MPI and to run beside ours:
// `mpi_peer LEAST MOST SECONDS` prints what mpi_all_reduce.cpp prints.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mpi.h>
#include <sys/resource.h>

namespace {

double processor_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long least = argc > 1 ? std::atol(argv[1]) : 4;
  const long most = argc > 2 ? std::atol(argv[2]) : 67108864;
  const double budget_s = argc > 3 ? std::atof(argv[3]) : 0.5;
  std::vector<float> values(static_cast<std::size_t>(most) / sizeof(float), 1.0F);
  for (long bytes = least; bytes <= most; bytes *= 4) {
    const int count = static_cast<int>(bytes / 4);
    const auto call = [&] {
      MPI_Allreduce(MPI_IN_PLACE, values.data(), count, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    };
    call();
    call();
    const double before = MPI_Wtime();
    call();
    int repeat = static_cast<int>(std::clamp(budget_s / (MPI_Wtime() - before), 5.0, 2000.0));
    MPI_Bcast(&repeat, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::vector<double> times;
    const double processor = processor_s();
    const double begin = MPI_Wtime();
    for (int i = 0; i < repeat; ++i) {
      const double at = MPI_Wtime();
      call();
      times.push_back((MPI_Wtime() - at) * 1e6);
    }
    const double share = (processor_s() - processor) / (MPI_Wtime() - begin);
    std::sort(times.begin(), times.end());
    if (rank == 0) {
      std::printf("%ld,%.1f,%.1f,%.1f,%.3f,%zu,%s\n",
                  bytes,
                  times[times.size() / 2],
                  times.front(),
                  times.back(),
                  share,
                  times.size(),
                  values[static_cast<std::size_t>(count) - 1] == 1.0F ? "ok" : "WRONG");
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
