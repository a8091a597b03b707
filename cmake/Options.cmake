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
            $<$<BOOL:${STRETTO_WERROR}>:-Werror>)
if(STRETTO_SANITIZE)
  target_compile_options(stretto_options INTERFACE -fsanitize=${STRETTO_SANITIZE} -fno-sanitize-recover=all
                                                   -fno-omit-frame-pointer)
  target_link_options(stretto_options INTERFACE -fsanitize=${STRETTO_SANITIZE})
endif()
find_program(STRETTO_CCACHE ccache)
if(STRETTO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STRETTO_CCACHE})
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
