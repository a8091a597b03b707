# SPDX-License-Identifier: Apache-2.0
# STRETTO_VIEWER: AUTO builds the page of `stretto report` if esbuild is there. Sets STRETTO_VIEWER_ESBUILD, empty for a
# build without it.
set(STRETTO_VIEWER AUTO CACHE STRING "Build the HTML viewer: AUTO, ON or OFF")
set_property(CACHE STRETTO_VIEWER PROPERTY STRINGS AUTO ON OFF)

set(STRETTO_VIEWER_ESBUILD "")
set(wanted ${STRETTO_VIEWER})
# Nothing that sanitizers run looks at the page.
if(wanted STREQUAL AUTO AND (STRETTO_SANITIZE OR STRETTO_FUZZ OR NOT PROJECT_IS_TOP_LEVEL))
  set(wanted OFF)
endif()
if(wanted)
  find_program(STRETTO_ESBUILD esbuild DOC "esbuild, for the viewer")
  mark_as_advanced(STRETTO_ESBUILD)
  if(STRETTO_ESBUILD)
    set(STRETTO_VIEWER_ESBUILD ${STRETTO_ESBUILD})
  elseif(NOT wanted STREQUAL AUTO)
    message(FATAL_ERROR "STRETTO_VIEWER=ON needs esbuild, which is not in PATH. On Debian: apt-get install esbuild; if it is "
                        "elsewhere: -DSTRETTO_ESBUILD=FILE")
  endif()
endif()
