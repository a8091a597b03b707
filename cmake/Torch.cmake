# SPDX-License-Identifier: Apache-2.0
# The example on LibTorch, with stretto/torch.hpp. STRETTO_TORCH: AUTO builds it if torch is found, in
# CMAKE_PREFIX_PATH or in the Python of the package; ON wants it; OFF does not look (as for clang-tidy, which takes
# minutes over torch's headers).
set(STRETTO_TORCH AUTO CACHE STRING "Build examples/libtorch: AUTO, ON or OFF")
set_property(CACHE STRETTO_TORCH PROPERTY STRINGS AUTO ON OFF)

set(STRETTO_TORCH_BUILDS OFF)
# torch is not linked with a sanitizer.
if(NOT STRETTO_TORCH OR STRETTO_SANITIZE OR STRETTO_FUZZ OR NOT PROJECT_IS_TOP_LEVEL OR SKBUILD)
  return()
endif()
set(folder "")
if(Python_EXECUTABLE)
  # Without importing it, which takes seconds.
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(flags "${CMAKE_CXX_FLAGS}")
set(level "${CMAKE_MESSAGE_LOG_LEVEL}")
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)  # it misses static libraries that nobody needs
find_package(Torch QUIET HINTS ${folder}/share/cmake/Torch)
set(CMAKE_MESSAGE_LOG_LEVEL "${level}")
set(CMAKE_CXX_FLAGS "${flags}")  # it is nobody else's business what it adds
if(Torch_FOUND)
  set(STRETTO_TORCH_BUILDS ON)
elseif(NOT STRETTO_TORCH STREQUAL AUTO)
  message(FATAL_ERROR "STRETTO_TORCH=ON, and LibTorch was not found. Add its folder to CMAKE_PREFIX_PATH: "
                      "python -c 'import torch; print(torch.utils.cmake_prefix_path)'")
endif()
