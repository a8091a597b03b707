# SPDX-License-Identifier: Apache-2.0
# STRETTO_VIEWER: AUTO builds the page of `stretto report` if npm and Node 18 or later are there. Sets
# STRETTO_VIEWER_NPM, empty for a build without it.
set(STRETTO_VIEWER AUTO CACHE STRING "Build the HTML viewer: AUTO, ON or OFF")
set_property(CACHE STRETTO_VIEWER PROPERTY STRINGS AUTO ON OFF)

set(STRETTO_VIEWER_NPM "")
set(STRETTO_VIEWER_REQUIRED OFF)
set(wanted ${STRETTO_VIEWER})
# Nothing that sanitizers run looks at the page.
if(wanted STREQUAL AUTO AND (STRETTO_SANITIZE OR STRETTO_FUZZ OR NOT PROJECT_IS_TOP_LEVEL))
  set(wanted OFF)
endif()
if(wanted)
  find_program(STRETTO_NPM npm DOC "npm, for the viewer")
  find_program(STRETTO_NODE NAMES node nodejs DOC "Node, for the viewer")
  mark_as_advanced(STRETTO_NPM STRETTO_NODE)
  set(version 0)
  if(STRETTO_NODE)
    execute_process(COMMAND ${STRETTO_NODE} --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX REPLACE "^v" "" version "${version}")
  endif()
  if(STRETTO_NPM AND version VERSION_GREATER_EQUAL 18)
    set(STRETTO_VIEWER_NPM ${STRETTO_NPM})
  endif()
  if(NOT wanted STREQUAL AUTO)
    set(STRETTO_VIEWER_REQUIRED ON)
    if(NOT STRETTO_VIEWER_NPM)
      message(FATAL_ERROR "STRETTO_VIEWER=ON needs npm and Node 18 or later; Node found: ${version}. On Debian: "
                          "apt-get install nodejs npm")
    endif()
  endif()
endif()
