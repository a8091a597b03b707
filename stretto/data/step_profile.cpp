// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/step_profile.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/data/json_reader.hpp"
#include "stretto/data/shape.hpp"

namespace stretto {
namespace {

using detail::JsonValue;
using nlohmann::ordered_json;

ProfileTensor read_tensor(const JsonValue& json, std::int64_t& total_elements) {
  json.allow_only({"name", "dtype", "shape", "ready_s"});
  ProfileTensor tensor;
  tensor.name = json.at("name").text();
  const JsonValue dtype = json.at("dtype");
  tensor.dtype = dtype.located([&] { return dtype_from_string(dtype.text()); });
  const JsonValue shape = json.at("shape");
  tensor.shape = shape.integers(0, detail::kMaxElements);
  const auto elements = detail::checked_elements(tensor.shape);
  if (!elements || (total_elements += *elements) > detail::kMaxElements) {
    shape.fail({"tensor size is not possible", {}, {}, "at most 2^56 elements in all", {}});
  }
  tensor.ready = json.at("ready_s").seconds();
  return tensor;
}

/// A time that is not before another one.
Seconds read_time_after(const JsonValue& json, Seconds earlier, std::string_view earlier_name) {
  const Seconds time = json.seconds();
  if (time < earlier) {
    json.fail({"times go backwards",
               {},
               format(time),
               "at least " + format(earlier) + ", " + std::string(earlier_name),
               {}});
  }
  return time;
}

}  // namespace

std::int64_t ProfileTensor::elements() const noexcept {
  return detail::checked_elements(shape).value_or(0);
}

Bytes ProfileTensor::bytes() const noexcept {
  return Bytes(elements() * static_cast<std::int64_t>(size_of(dtype)));
}

Bytes StepProfile::bytes() const noexcept {
  Bytes sum;
  for (const ProfileTensor& tensor : tensors) {
    sum += tensor.bytes();
  }
  return sum;
}

std::string to_json(const StepProfile& profile) {
  ordered_json forward = ordered_json::array();
  for (const LayerTime& layer : profile.forward) {
    forward.push_back(ordered_json{{"name", layer.name}, {"forward_s", layer.forward.count()}});
  }
  ordered_json tensors = ordered_json::array();
  for (const ProfileTensor& tensor : profile.tensors) {
    tensors.push_back(ordered_json{{"name", tensor.name},
                                   {"dtype", to_string(tensor.dtype)},
                                   {"shape", tensor.shape},
                                   {"ready_s", tensor.ready.count()}});
  }
  ordered_json document = {{"schema", "stretto.step_profile/1"},
                           {"model", profile.model},
                           {"batch", profile.batch},
                           {"basis", to_string(profile.basis)},
                           {"assumptions", profile.assumptions},
                           {"beside_communication", profile.beside_communication}};
  if (profile.compute_slowdown != 1.0) {
    document["compute_slowdown"] = profile.compute_slowdown;
  }
  if (profile.optimizer_after_exchanges) {
    document["optimizer_after_exchanges"] = true;
  }
  document["forward_end_s"] = profile.forward_end.count();
  document["backward_end_s"] = profile.backward_end.count();
  document["compute_end_s"] = profile.compute_end.count();
  document["forward"] = std::move(forward);
  document["tensors"] = std::move(tensors);
  return detail::write_json(document);
}

StepProfile step_profile_from_json(std::string_view text, std::string_view where) {
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  root.check_schema("step_profile");
  root.allow_only({"schema",
                   "model",
                   "batch",
                   "basis",
                   "assumptions",
                   "beside_communication",
                   "compute_slowdown",
                   "optimizer_after_exchanges",
                   "forward_end_s",
                   "backward_end_s",
                   "compute_end_s",
                   "forward",
                   "tensors"});
  StepProfile profile;
  profile.model = root.at("model").text();
  profile.batch = root.at("batch").integer(0, std::numeric_limits<std::int32_t>::max());
  const JsonValue basis = root.at("basis");
  profile.basis = basis.located([&] { return basis_from_string(basis.text()); });
  profile.assumptions = root.at("assumptions").text();
  profile.beside_communication = root.at("beside_communication").boolean();
  if (const auto slowdown = root.find("compute_slowdown")) {
    profile.compute_slowdown = slowdown->number();
    if (!(profile.compute_slowdown >= 1.0)) {
      slowdown->fail({"compute is not quicker beside communication",
                      "",
                      std::to_string(profile.compute_slowdown),
                      "a factor of 1 or more",
                      ""});
    }
  }
  if (const auto after = root.find("optimizer_after_exchanges")) {
    profile.optimizer_after_exchanges = after->boolean();
  }
  profile.forward_end = root.at("forward_end_s").seconds();
  profile.backward_end =
      read_time_after(root.at("backward_end_s"), profile.forward_end, "forward_end_s");
  profile.compute_end =
      read_time_after(root.at("compute_end_s"), profile.backward_end, "backward_end_s");
  for (const JsonValue& json : root.at("forward").elements()) {
    json.allow_only({"name", "forward_s"});
    profile.forward.push_back({json.at("name").text(), json.at("forward_s").seconds()});
  }
  Seconds earlier = profile.forward_end;
  std::string_view earlier_name = "forward_end_s";
  std::int64_t total_elements = 0;
  for (const JsonValue& json : root.at("tensors").elements()) {
    ProfileTensor tensor = read_tensor(json, total_elements);
    earlier = read_time_after(json.at("ready_s"), earlier, earlier_name);
    earlier_name = "the tensor before it";
    profile.tensors.push_back(std::move(tensor));
  }
  if (profile.backward_end < earlier) {
    root.at("backward_end_s")
        .fail({"times go backwards",
               {},
               format(profile.backward_end),
               "at least " + format(earlier) + ", when the last tensor is ready",
               {}});
  }
  return profile;
}

}  // namespace stretto
