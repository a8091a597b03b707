# SPDX-License-Identifier: Apache-2.0
# Flags for our own code only: linked as $<BUILD_INTERFACE:stretto_options>, they never reach a user.
add_library(stretto_options INTERFACE)
target_compile_options(
  stretto_options
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Wshadow
            -Wconversion
            -Wsign-conversion
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -Wold-style-cast
            # What g++ 12 sees at -O3 in std::string and fmt that cannot be (GCC bug 105651 and its kin).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow>
            # Designated initializers name what differs from the default; the rest is meant to be left out.
            -Wno-missing-field-initializers
            $<$<BOOL:${STRETTO_WERROR}>:-Werror>)
if(STRETTO_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # clang 14 cannot emit the check of function types for coroutines ("difference across sections").
  set(sanitize_except -fno-sanitize=function)
endif()
if(STRETTO_SANITIZE)
  target_compile_options(stretto_options INTERFACE -fsanitize=${STRETTO_SANITIZE} ${sanitize_except} -fno-sanitize-recover=all
                                                   -fno-omit-frame-pointer)
  target_link_options(stretto_options INTERFACE -fsanitize=${STRETTO_SANITIZE})
endif()
if(STRETTO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "STRETTO_FUZZ needs libFuzzer, which comes with clang; found "
                        "${CMAKE_CXX_COMPILER_ID}. Use: cmake --preset asan")
  endif()
  target_compile_options(stretto_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# ccache, when there is one. It refuses precompiled headers unless it is told that they hold neither
# defines nor times that matter. Nor does it matter in which folder one builds: a wheel is then made of
# what the build of the tests has compiled.
find_program(STRETTO_CCACHE ccache)
if(STRETTO_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
                                  CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1
                                  ${STRETTO_CCACHE})
endif()
