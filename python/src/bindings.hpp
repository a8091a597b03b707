// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"

/// The parts of the module `_core`. Enumerations are their JSON names here, times are seconds as
/// float (integers where a name ends in _ns) and sizes are bytes as int, under the names of the
/// JSON keys.
namespace stretto::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_nouns(nb::module_& module);
void bind_results(nb::module_& module);
void bind_runtime(nb::module_& module);

/// The dict that a JSON text is.
[[nodiscard]] inline nb::object parsed(const std::string& json) {
  return nb::module_::import_("json").attr("loads")(json);
}

/// A table for notebooks; which columns a class has, _html.py says.
[[nodiscard]] inline nb::object html(const nb::handle& self) {
  return nb::module_::import_("stretto._html").attr("html")(self);
}

[[nodiscard]] inline std::optional<double> seconds(const std::optional<Seconds>& time) {
  return time ? std::optional(time->count()) : std::nullopt;
}

}  // namespace stretto::python
