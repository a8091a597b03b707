// SPDX-License-Identifier: Apache-2.0
// The C++ library for WebAssembly that Debian 12 has comes without exceptions, and so without these
// functions. What is thrown ends in the page, as text, and this instance is over: nothing was
// unwound, so the page throws it away and makes another. Handlers are compiled, and never run.
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <typeinfo>

/// Given by the page; does not return.
extern "C" __attribute__((import_module("page"), import_name("failed"))) void page_failed(
    const char* text);

extern "C" {

void* __cxa_allocate_exception(std::size_t size) noexcept {
  return std::malloc(size);
}

void __cxa_free_exception(void* /*object*/) noexcept {}

/// All that Stretto, nlohmann-json and the standard library throw is a std::exception, and its
/// first base: there is no object of another type to be taken for one.
[[noreturn]] void __cxa_throw(void* object, std::type_info* /*type*/, void (* /*destroy*/)(void*)) {
  page_failed(static_cast<std::exception*>(object)->what());
  __builtin_trap();
}

void* __cxa_begin_catch(void* /*object*/) noexcept {
  __builtin_trap();
}

void __cxa_end_catch() {
  __builtin_trap();
}

[[noreturn]] void __cxa_rethrow() {
  __builtin_trap();
}

}  // extern "C"
