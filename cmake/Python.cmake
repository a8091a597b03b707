# SPDX-License-Identifier: Apache-2.0
# STRETTO_PYTHON: AUTO builds the Python package if Python's headers and nanobind are there. Sets
# STRETTO_PYTHON_BUILDS. Of several Pythons it takes the one in .venv, where ./setup puts torch.
set(STRETTO_PYTHON AUTO CACHE STRING "Build the Python package: AUTO, ON or OFF")
set_property(CACHE STRETTO_PYTHON PROPERTY STRINGS AUTO ON OFF)

set(STRETTO_PYTHON_BUILDS OFF)
set(wanted ${STRETTO_PYTHON})
# A program that is not linked with a sanitizer, as Python is not, cannot load a module that is.
if(STRETTO_SANITIZE OR STRETTO_FUZZ OR (wanted STREQUAL AUTO AND NOT PROJECT_IS_TOP_LEVEL))
  set(wanted OFF)
endif()
if(wanted)
  if(NOT Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "Python of the package")
  endif()
  set(components Interpreter Development.Module)
  if(SKBUILD_SABI_COMPONENT)
    list(APPEND components ${SKBUILD_SABI_COMPONENT})  # a wheel for all Pythons from 3.12
  endif()
  find_package(Python 3.9 QUIET COMPONENTS ${components})
  if(Python_FOUND)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    find_package(nanobind CONFIG QUIET)
  endif()
  if(Python_FOUND AND nanobind_FOUND)
    set(STRETTO_PYTHON_BUILDS ON)
  elseif(NOT wanted STREQUAL AUTO)
    message(FATAL_ERROR "STRETTO_PYTHON=ON needs Python's headers and nanobind; Python headers found: "
                        "${Python_FOUND}, nanobind found: ${nanobind_FOUND}. On Debian: apt-get install python3-dev, "
                        "and pip install nanobind for the Python that Python_EXECUTABLE names")
  endif()
endif()
