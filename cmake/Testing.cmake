# SPDX-License-Identifier: Apache-2.0
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
include(GoogleTest)

# One precompiled header for all test executables: GoogleTest and RapidCheck cost more to parse than
# most tests cost to compile.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/test_pch.cpp.tmp "// Only carries the precompiled header.\n")
file(COPY_FILE ${CMAKE_CURRENT_BINARY_DIR}/test_pch.cpp.tmp ${CMAKE_CURRENT_BINARY_DIR}/test_pch.cpp
     ONLY_IF_DIFFERENT)
add_library(stretto_test_pch OBJECT ${CMAKE_CURRENT_BINARY_DIR}/test_pch.cpp)
target_link_libraries(stretto_test_pch PUBLIC stretto stretto_options GTest::gtest_main rapidcheck)
target_precompile_headers(stretto_test_pch PRIVATE <gtest/gtest.h> <rapidcheck/gtest.h> <string>
                          <vector>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What ccache needs to see through the precompiled header.
  target_compile_options(stretto_test_pch PUBLIC -fpch-preprocess)
endif()

# A test that takes this long hangs: several times what the slowest takes with a sanitizer on a busy machine.
set(STRETTO_TEST_TIMEOUT_S 180)

# stretto_test(FOLDER FILE...): the executable FOLDER_test from tests/FOLDER/FILE..., its tests known to
# ctest one by one under the label FOLDER.
function(stretto_test folder)
  set(target ${folder}_test)
  list(TRANSFORM ARGN PREPEND ${folder}/ OUTPUT_VARIABLE sources)
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE stretto stretto_options GTest::gtest_main rapidcheck)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_precompile_headers(${target} REUSE_FROM stretto_test_pch)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
  # Those with ranks on an emulated machine or time-outs in seconds have the processors to themselves.
  set(alone FALSE)
  if(folder MATCHES "^(measure|run|topology|workload)$")
    set(alone TRUE)
  endif()
  gtest_discover_tests(
    ${target}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 30
    NO_PRETTY_VALUES
    TEST_PREFIX ${folder}.
    PROPERTIES TIMEOUT ${STRETTO_TEST_TIMEOUT_S} LABELS ${folder} RUN_SERIAL ${alone})
endfunction()

# stretto_python_test(FOLDER FILE...): each file of tests/FOLDER is a program that fails when a test does.
function(stretto_python_test folder)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  foreach(file ${ARGN})
    cmake_path(GET file STEM name)
    add_test(NAME ${folder}.${name}
             COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${file})
    set_tests_properties(${folder}.${name} PROPERTIES TIMEOUT ${STRETTO_TEST_TIMEOUT_S} LABELS ${folder})
  endforeach()
endfunction()

# stretto_pytest(NAME RANKS FILE...): tests of the Python package, on so many ranks (0: in one process). Where
# torch is missing they end with 5, and are skipped.
function(stretto_pytest name ranks)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/python/ OUTPUT_VARIABLE files)
  set(command ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${files})
  if(ranks GREATER 0)
    set(command $<TARGET_FILE:stretto_cli> run -n ${ranks} -- ${command})
  endif()
  add_test(NAME python.${name} COMMAND ${command})
  # One after the other, for they start ranks that need the processors.
  set_tests_properties(python.${name} PROPERTIES ENVIRONMENT PYTHONPATH=${PROJECT_BINARY_DIR}/python LABELS python
                       RUN_SERIAL TRUE TIMEOUT 300 SKIP_RETURN_CODE 5)
endfunction()
