// SPDX-License-Identifier: Apache-2.0
#include <exception>

#include "bindings.hpp"

namespace stretto::python {
namespace {

// A stretto::Error becomes the class of stretto/errors.py that its code names.
void translate(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const ErrorDetail& detail = error.detail();
    try {
      const nb::object exception = nb::module_::import_("stretto.errors")
                                       .attr("make")(to_string(error.code()),
                                                     detail.message,
                                                     detail.where,
                                                     detail.found,
                                                     detail.expected,
                                                     detail.help);
      PyErr_SetObject(exception.type().ptr(), exception.ptr());
    } catch (nb::python_error& failed) {
      failed.restore();
    }
  }
}

}  // namespace
}  // namespace stretto::python

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  module.doc() = "The C++ library under the package stretto. Not for direct use.";
  module.attr("__version__") = STRETTO_VERSION;
  nb::set_leak_warnings(false);  // models may live until the interpreter goes, in cycles
  nb::register_exception_translator(stretto::python::translate);
  stretto::python::bind_nouns(module);
  stretto::python::bind_results(module);
  stretto::python::bind_runtime(module);
}
