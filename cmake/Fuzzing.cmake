# SPDX-License-Identifier: Apache-2.0
# stretto_fuzz(NAME): the libFuzzer program NAME_fuzz from tests/fuzz/NAME_fuzz.cpp. Seeds, if any, lie in
# tests/fuzz/corpus/NAME.
function(stretto_fuzz name)
  add_executable(${name}_fuzz fuzz/${name}_fuzz.cpp)
  target_link_libraries(${name}_fuzz PRIVATE stretto stretto_options)
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
endfunction()
