// SPDX-License-Identifier: Apache-2.0
// Compiled once per MPI library, into a module of its own. The only file that knows MPI.
#include "stretto/comm/mpi/module/module.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>
#include <unistd.h>

namespace {

using stretto::detail::kMpiAnyRank;
using stretto::detail::MpiModule;

struct Communicator {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<MPI_Status> statuses;
};

// MPI is one per process, and so is the question who ends it.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): MPI's state is the process's
bool finalize_at_exit = false;

MPI_Comm comm_of(void* communicator) {
  return static_cast<Communicator*>(communicator)->comm;
}
MPI_Request* request_of(void* request) {
  return static_cast<MPI_Request*>(request);
}

// MPI_Finalize must not hang, and does: MPICH 4.0 over UCX and TCP in one of ten runs of four
// ranks, of any program.
void finalize_or_leave(int exit_code) {
  constexpr auto kLongest = std::chrono::seconds(10);
  std::fflush(nullptr);  // of what is left at _exit() nothing would be written
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread watchdog([&] {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, kLongest, [&] { return over; })) {
      _exit(exit_code);
    }
  });
  MPI_Finalize();
  {
    const std::scoped_lock lock(mutex);
    over = true;
  }
  changed.notify_one();
  watchdog.join();
}

void at_exit(int exit_code, void* /*unused*/) {
  int over = 1;
  MPI_Finalized(&over);
  if (over != 0) {
    return;
  }
  if (finalize_at_exit) {
    finalize_or_leave(exit_code);
  } else {
    // mpirun ends all ranks when one goes like this: let them say first why they fail.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

// Ignores a signal, unless the program has a use for it.
void ignore_unless_used(int signal, const struct sigaction& before) {
  if (before.sa_handler == SIG_DFL) {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(signal, &ignore, nullptr);
  }
}

// What ends a process by default when another rank is lost, though MPI goes on:
// - SIGPIPE: Open MPI writes to the lost rank's socket;
// - SIGUSR1: told to leave lost ranks to the others (-disable-auto-cleanup), MPICH's mpirun reports
//   one so. MPICH 4.0's own handler of it ends this process as well (in its next call).
// Made before MPI_Init, which installs that handler.
class Survival {
 public:
  Survival() {
    sigaction(SIGPIPE, nullptr, &pipe_);
    sigaction(SIGUSR1, nullptr, &user_);
  }
  void of_lost_ranks() const {
    ignore_unless_used(SIGPIPE, pipe_);
#ifdef MPICH_VERSION
    ignore_unless_used(SIGUSR1, user_);
#endif
  }

 private:
  struct sigaction pipe_ {};
  struct sigaction user_ {};
};

// Open MPI 4.1 over TCP may never return from a call once a peer was killed in the middle of
// traffic: it enters an event into its list twice, and goes round in it. With a progress thread of
// its own only that thread is lost, at a price in latency; so it gets one where survivors count.
void keep_calls_returning() {
#ifdef OPEN_MPI
  const char* const recovery = std::getenv("OMPI_MCA_orte_enable_recovery");
  if (recovery != nullptr && std::strcmp(recovery, "0") != 0) {
    setenv("OMPI_MCA_btl_tcp_progress_thread", "1", 0);  // unless the user has said
  }
#endif
}

int is_finalized() {
  int over = 0;
  MPI_Finalized(&over);
  return over;
}

int initialize(int* multiple) {
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  int code = MPI_Initialized(&initialized);
  if (code != MPI_SUCCESS) {
    return code;
  }
  if (initialized != 0) {
    code = MPI_Query_thread(&provided);
  } else {
    const Survival survival;
    keep_calls_returning();
    code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (code == MPI_SUCCESS) {
      finalize_at_exit = true;
      on_exit(&at_exit, nullptr);
      survival.of_lost_ranks();
    }
  }
  *multiple = provided >= MPI_THREAD_MULTIPLE ? 1 : 0;
  return code;
}

void leave_unfinalized() {
  finalize_at_exit = false;
}

int duplicate_world(void** communicator, int* rank, int* size) {
  MPI_Comm comm = MPI_COMM_NULL;
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (code != MPI_SUCCESS) {
    return code;
  }
  code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) {
    // What belongs to no communicator is reported there; what the program set for itself stays.
    MPI_Comm_rank(comm, rank);
    MPI_Comm_size(comm, size);
    *communicator = new Communicator{comm, {}};
  }
  return code;
}

void free_communicator(void* communicator) {
  auto* const mine = static_cast<Communicator*>(communicator);
  MPI_Comm_free(&mine->comm);
  delete mine;
}

int all_gather(void* communicator, const void* mine, std::size_t bytes, void* all) {
  const int count = static_cast<int>(bytes);
  return MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_of(communicator));
}

int send(void* communicator, const void* data, std::size_t bytes, int to, int tag, void* request) {
  return MPI_Isend(
      data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_of(communicator), request_of(request));
}

int receive(void* communicator, void* data, std::size_t bytes, int from, int tag, void* request) {
  return MPI_Irecv(data,
                   static_cast<int>(bytes),
                   MPI_BYTE,
                   from == kMpiAnyRank ? MPI_ANY_SOURCE : from,
                   tag,
                   comm_of(communicator),
                   request_of(request));
}

void clear(void* request) {
  *request_of(request) = MPI_REQUEST_NULL;
}

void cancel(void* request) {
  if (*request_of(request) != MPI_REQUEST_NULL) {
    MPI_Cancel(request_of(request));
  }
}

int test_some(void* communicator,
              void* requests,
              int count,
              int* finished,
              int* finished_count,
              int* failed) {
  auto& statuses = static_cast<Communicator*>(communicator)->statuses;
  if (statuses.size() < static_cast<std::size_t>(count)) {
    statuses.resize(static_cast<std::size_t>(count));
  }
  *failed = -1;
  int over = 0;
  const int code = MPI_Testsome(count, request_of(requests), &over, finished, statuses.data());
  *finished_count = over == MPI_UNDEFINED ? 0 : over;
  if (code != MPI_ERR_IN_STATUS) {
    return code;
  }
  for (int i = 0; i < *finished_count; ++i) {
    const int error = statuses[static_cast<std::size_t>(i)].MPI_ERROR;
    if (error != MPI_SUCCESS) {
      *failed = finished[i];
      return error;
    }
  }
  return MPI_SUCCESS;
}

void copy_text(const char* from, int length, char* text, std::size_t capacity) {
  const std::size_t bytes = std::min(static_cast<std::size_t>(std::max(length, 0)), capacity - 1);
  std::memcpy(text, from, bytes);
  text[bytes] = '\0';
}

void error_text(int code, char* text, std::size_t capacity) {
  std::string words(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, words.data(), &length);
  copy_text(words.data(), length, text, capacity);
}

void library_version(char* text, std::size_t capacity) {
  std::string words(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(words.data(), &length);
  copy_text(words.data(), length, text, capacity);
}

constexpr MpiModule kModule = {
    .version = stretto::detail::kMpiModuleVersion,
    .request_bytes = sizeof(MPI_Request),
    .name = STRETTO_MPI_NAME,
    .is_finalized = &is_finalized,
    .initialize = &initialize,
    .leave_unfinalized = &leave_unfinalized,
    .duplicate_world = &duplicate_world,
    .free_communicator = &free_communicator,
    .all_gather = &all_gather,
    .send = &send,
    .receive = &receive,
    .clear = &clear,
    .cancel = &cancel,
    .test_some = &test_some,
    .error_text = &error_text,
    .library_version = &library_version,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiModule* stretto_mpi_module() {
  return &kModule;
}
