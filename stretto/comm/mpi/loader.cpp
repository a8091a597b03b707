// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/mpi/loader.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <vector>

#include <dlfcn.h>
#include <link.h>

#include "stretto/comm/mpi/mpi.hpp"

namespace stretto::detail {
namespace {

constexpr const char* kChoiceVariable = "STRETTO_MPI";
constexpr const char* kOpenMpi = "openmpi";
constexpr const char* kMpich = "mpich";

/// What an MPI library that is in this process already says of itself; empty without one.
std::string loaded_mpi_version() {
  using GetLibraryVersion = int (*)(char*, int*);
  void* const symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
  if (symbol == nullptr) {
    return {};
  }
  // Larger than MPI_MAX_LIBRARY_VERSION_STRING of any MPI there is: MPICH's, the longest, is 8192.
  std::array<char, 65536> text{};
  int length = 0;
  reinterpret_cast<GetLibraryVersion>(symbol)(text.data(), &length);
  return text.data();
}

/// The file this code is in: the program, or a shared library.
std::string own_file() {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&own_file),
              &info,
              reinterpret_cast<void**>(&map),
              RTLD_DL_LINKMAP) != 0 &&
      map != nullptr && map->l_name != nullptr && map->l_name[0] != '\0') {
    return map->l_name;
  }
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed).string();
}

/// The MPI whose launcher, or a launcher it understands, has been here; null if none.
const char* launched_mpi(const EnvironmentReader& read) {
  const auto any = [&read](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&read](const char* name) {
      const std::optional<std::string> value = read(name);
      return value && !value->empty();
    });
  };
  if (any({"OMPI_COMM_WORLD_SIZE"})) {
    return kOpenMpi;
  }
  if (any({"PMI_RANK", "PMI_SIZE", "PMI_FD", "HYDI_CONTROL_FD", "MPI_LOCALNRANKS"})) {
    return kMpich;
  }
  // srun --mpi=pmix: of the two, Open MPI speaks PMIx in every build.
  return any({"PMIX_RANK"}) ? kOpenMpi : nullptr;
}

std::string packages_for(const std::string& choice) {
  if (choice == kOpenMpi || choice == kMpich) {
    return "Build Stretto where the packages " +
           std::string(choice == kOpenMpi ? "libopenmpi-dev and openmpi-bin"
                                          : "libmpich-dev and mpich") +
           " are installed (CMake option STRETTO_MPI=ON says what is missing), or set STRETTO_MPI "
           "to the module's file.";
  }
  return "STRETTO_MPI names a file that cannot be used.";
}

}  // namespace

std::string choose_mpi(const EnvironmentReader& read, const std::string& loaded_version) {
  if (const auto given = read(kChoiceVariable); given && !given->empty()) {
    if (*given == kOpenMpi || *given == kMpich || given->find('/') != std::string::npos) {
      return *given;
    }
    throw Error(ErrorCode::kUnavailable,
                {"there is no MPI of that name",
                 kChoiceVariable,
                 "'" + *given + "'",
                 "openmpi, mpich, or the path of a module",
                 "Unset it: the launcher's variables tell."});
  }
  if (!loaded_version.empty()) {
    return loaded_version.find("Open MPI") != std::string::npos ? kOpenMpi : kMpich;
  }
  if (const char* const launched = launched_mpi(read)) {
    return launched;
  }
  throw Error(ErrorCode::kUnavailable,
              {"this process is no rank of an MPI job",
               "backend mpi",
               "no variable of Open MPI's or MPICH's mpirun, or of PMIx",
               "OMPI_COMM_WORLD_SIZE, PMI_RANK or PMIX_RANK to be set",
               "Start it by mpirun: mpirun -n 4 PROGRAM ARGS."});
}

std::vector<std::string> mpi_module_paths(const std::string& choice, const std::string& beside) {
  if (choice.find('/') != std::string::npos) {
    return {choice};
  }
  const std::string name = "libstretto_" + choice + ".so";
  const std::filesystem::path folder = std::filesystem::path(beside).parent_path();
  std::vector<std::string> paths;
  // Beside a shared library; then from a program in bin/, in an installation or in a build tree;
  // then in a Python package, from its extension module.
  for (const char* const from :
       {"stretto", "../" STRETTO_LIBRARY_FOLDER "/stretto", STRETTO_LIBRARY_FOLDER "/stretto"}) {
    paths.push_back((folder / from / name).lexically_normal().string());
  }
  return paths;
}

const MpiModule& load_mpi_module(const EnvironmentReader& read) {
  const std::string choice = choose_mpi(read, loaded_mpi_version());
  std::string tried;
  for (const std::string& path : mpi_module_paths(choice, own_file())) {
    // Global: the plug-ins of Open MPI look for its symbols. Never unloaded: threads and exit
    // handlers of MPI stay.
    void* const file = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (file == nullptr) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): one message per thread
      const char* const why = dlerror();
      tried += (tried.empty() ? "" : "; ") + std::string(why == nullptr ? path : why);
      continue;
    }
    void* const symbol = dlsym(file, kMpiModuleEntry);
    const MpiModule* const module =
        symbol == nullptr ? nullptr : reinterpret_cast<MpiModuleEntry>(symbol)();
    if (module == nullptr || module->version != kMpiModuleVersion) {
      throw Error(ErrorCode::kUnavailable,
                  {"the MPI module is of another version of Stretto",
                   path,
                   module == nullptr ? "no " + std::string(kMpiModuleEntry)
                                     : "version " + std::to_string(module->version),
                   "version " + std::to_string(kMpiModuleVersion),
                   "Build or install both together."});
    }
    return *module;
  }
  throw Error(ErrorCode::kUnavailable,
              {"there is no module for this MPI",
               "backend mpi",
               tried,
               "libstretto_" + choice + ".so",
               packages_for(choice)});
}

std::string mpi_error_text(const MpiModule& mpi, int code) {
  std::array<char, 1024> text{};
  mpi.error_text(code, text.data(), text.size());
  return text.data();
}

void check_mpi(const MpiModule& mpi, int code, const std::string& doing) {
  if (code != 0) {
    throw Error(ErrorCode::kBackend,
                {"MPI could not " + doing, mpi.name, mpi_error_text(mpi, code), "", ""});
  }
}

}  // namespace stretto::detail

namespace stretto {

bool started_by_mpi(const EnvironmentReader& read) {
  return detail::launched_mpi(read) != nullptr;
}

}  // namespace stretto
