# SPDX-License-Identifier: Apache-2.0
# Whether what the page reckons with (viewer/wasm) can be built: base, data, simulate and plan as WebAssembly. Sets
# STRETTO_WASM_COMPILER, empty for a page without What-if and Learn.
set(STRETTO_WASM_COMPILER "")
set(STRETTO_WASM_PACKAGES
    "clang-14 lld-14 wasi-libc libc++-14-dev-wasm32 libc++abi-14-dev-wasm32 libclang-rt-14-dev-wasm32")
if(STRETTO_VIEWER_ESBUILD)
  find_program(STRETTO_CLANG_WASM NAMES clang++-14 clang++ DOC "clang++ with lld and libc++ for wasm32-wasi")
  mark_as_advanced(STRETTO_CLANG_WASM)
  if(STRETTO_CLANG_WASM)
    set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/wasm_probe)
    file(WRITE ${probe}.cpp "#include <string>\nint main(int n, char**) { return std::to_string(n).size() != 1; }\n")
    execute_process(
      COMMAND ${STRETTO_CLANG_WASM} --target=wasm32-wasi -std=c++20 ${probe}.cpp -o ${probe}.wasm
      RESULT_VARIABLE failed
      OUTPUT_QUIET ERROR_QUIET)
    if(failed EQUAL 0)
      set(STRETTO_WASM_COMPILER ${STRETTO_CLANG_WASM})
    endif()
  endif()
endif()
