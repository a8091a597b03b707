// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <fstream>
#include <sstream>

#include <nanobind/ndarray.h>

#include "bindings.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/models.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/plan/codec_choice.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/report/report.hpp"

namespace stretto::python {
namespace {

std::string read_text(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the file cannot be read", path, "", "a file", "Check the path."});
  }
  return std::move(text).str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw Error(ErrorCode::kUnavailable,
                {"the file cannot be written", path, "", "a place to write to", ""});
  }
}

std::string path_of(const nb::object& path) {
  return nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
}

// JSON forms, files, pickling, and what a notebook shows: all nouns have them.
template <typename Noun, typename FromJson>
void add_forms(nb::class_<Noun>& type, FromJson from_json) {
  type.def(
          "to_json", [](const Noun& self) { return to_json(self); }, "Its JSON text.")
      .def(
          "to_dict",
          [](const Noun& self) { return parsed(to_json(self)); },
          "What its JSON text says, as a dict.")
      .def_static(
          "from_json",
          [from_json](std::string_view text, std::string_view where) {
            return from_json(text, where);
          },
          "text"_a,
          "where"_a = "text",
          "Reads what to_json() wrote; `where` names the source in errors.")
      .def(
          "save",
          [](const Noun& self, const nb::object& path) {
            write_text(path_of(path), to_json(self));
          },
          nb::sig("def save(self, path: str | os.PathLike[str]) -> None"))
      .def_static("load",
                  [from_json](const nb::object& path) {
                    const std::string name = path_of(path);
                    return from_json(read_text(name), name);
                  })
      .def("__getstate__", [](const Noun& self) { return to_json(self); })
      .def("__setstate__",
           [from_json](Noun& self, const std::string& text) {
             new (&self) Noun(from_json(text, "pickle"));
           })
      .def("_repr_html_", [](const nb::object& self) { return html(self); });
}

void bind_plan(nb::module_& module) {
  nb::class_<TensorSpec>(module, "TensorSpec", "A tensor whose gradient travels.")
      .def(
          "__init__",
          [](TensorSpec* self,
             std::string name,
             std::vector<std::int64_t> shape,
             std::string_view dtype) {
            new (self) TensorSpec{std::move(name), dtype_from_string(dtype), std::move(shape)};
          },
          "name"_a,
          "shape"_a,
          "dtype"_a = "f32")
      .def_ro("name", &TensorSpec::name)
      .def_ro("shape", &TensorSpec::shape)
      .def_prop_ro("dtype", [](const TensorSpec& self) { return to_string(self.dtype); })
      .def_prop_ro("elements", &TensorSpec::elements)
      .def_prop_ro("bytes", [](const TensorSpec& self) { return self.bytes().count(); })
      .def(
          "__eq__",
          [](const TensorSpec& self, const nb::object& other) {
            return nb::isinstance<TensorSpec>(other) && self == nb::cast<const TensorSpec&>(other);
          },
          nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__repr__", [](const TensorSpec& self) {
        return "<TensorSpec " + self.name + ", " + format(self.bytes()) + ">";
      });

  nb::class_<CodecSpec>(module, "CodecSpec", "One codec with its settings: docs/compression.md.")
      .def(
          "__init__",
          [](CodecSpec* self, std::string_view text) { new (self) CodecSpec(parse_codec(text)); },
          "text"_a)
      .def_prop_ro("kind",
                   [](const CodecSpec& self) {
                     const std::string text = to_string(self);
                     return text.substr(0, text.find(':'));
                   })
      .def_ro("stochastic", &CodecSpec::stochastic)
      .def_ro("error_feedback", &CodecSpec::error_feedback)
      .def_ro("momentum", &CodecSpec::momentum)
      .def_ro("warmup", &CodecSpec::warmup)
      .def("chosen_of",
           nb::overload_cast<std::size_t>(&CodecSpec::chosen_of, nb::const_),
           "elements"_a,
           "Of a bucket of so many elements, how many topk and randomk send.")
      .def("__repr__", [](const CodecSpec& self) { return to_string(self); });

  nb::class_<Bucket>(module,
                     "Bucket",
                     "Elements [begin, end) of all tensors of one dtype, laid one after the other.")
      .def(
          "__init__",
          [](Bucket* self,
             std::int64_t begin,
             std::int64_t end,
             std::string_view dtype,
             int priority,
             std::string_view algorithm,
             std::string_view codec) {
            new (self) Bucket{dtype_from_string(dtype),
                              begin,
                              end,
                              priority,
                              algorithm_from_string(algorithm),
                              parse_codec(codec)};
          },
          "begin"_a,
          "end"_a,
          "dtype"_a = "f32",
          "priority"_a = 0,
          "algorithm"_a = "auto",
          "codec"_a = "none")
      .def_ro("begin", &Bucket::begin)
      .def_ro("end", &Bucket::end)
      .def_ro("priority", &Bucket::priority)
      .def_prop_ro("dtype", [](const Bucket& self) { return to_string(self.dtype); })
      .def_prop_ro("algorithm", [](const Bucket& self) { return to_string(self.algorithm); })
      .def_prop_ro("codec", [](const Bucket& self) { return to_string(self.codec); })
      .def_prop_ro("bytes", [](const Bucket& self) { return self.bytes().count(); })
      .def(
          "__eq__",
          [](const Bucket& self, const nb::object& other) {
            return nb::isinstance<Bucket>(other) && self == nb::cast<const Bucket&>(other);
          },
          nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__repr__",
           [](const Bucket& self) { return "<Bucket of " + format(self.bytes()) + ">"; });

  nb::class_<Plan> plan(
      module, "Plan", "How the gradients travel: tensors in backward order, buckets over them.");
  plan.def(
          "__init__",
          [](Plan* self,
             std::vector<TensorSpec> tensors,
             std::vector<Bucket> buckets,
             std::string origin) {
            Plan made{std::move(origin), std::move(tensors), std::move(buckets)};
            made.validate();
            new (self) Plan(std::move(made));
          },
          "tensors"_a,
          "buckets"_a,
          "origin"_a = "by hand")
      .def_ro("origin", &Plan::origin)
      .def_ro("tensors", &Plan::tensors)
      .def_ro("buckets", &Plan::buckets)
      .def_prop_ro("bytes", [](const Plan& self) { return self.bytes().count(); })
      .def_prop_ro("hash", &Plan::hash, "Equal on all ranks, or the job stops with a Mismatch.")
      .def(
          "tensor_names",
          [](const Plan& self, std::size_t bucket) {
            std::vector<std::string> names;
            for (const TensorRange& range : self.ranges(bucket)) {
              names.push_back(self.tensors[range.tensor].name);
            }
            return names;
          },
          "bucket"_a,
          "Tensors of which the bucket holds all or a part.")
      .def(
          "with_codec",
          [](const Plan& self, std::string_view codec, const std::vector<std::string>& exact) {
            return with_codec(self, parse_codec(codec), exact);
          },
          "codec"_a,
          "exact"_a = std::vector<std::string>(),
          "The same plan with this codec for its buckets of f32 that hold no tensor named in "
          "`exact` (* stands for anything).")
      .def_static(
          "uniform",
          [](std::vector<TensorSpec> tensors, std::int64_t cap_bytes, bool split) {
            return uniform_plan(std::move(tensors), Bytes(cap_bytes), split);
          },
          "tensors"_a,
          "cap_bytes"_a,
          "split"_a = true,
          "Buckets of at most so many bytes, filled in order; large tensors may be cut.")
      .def_static(
          "ddp",
          [](std::vector<TensorSpec> tensors,
             std::int64_t cap_bytes,
             std::int64_t first_cap_bytes) {
            return ddp_plan(std::move(tensors), Bytes(cap_bytes), Bytes(first_cap_bytes));
          },
          "tensors"_a,
          "cap_bytes"_a = 25 << 20,
          "first_cap_bytes"_a = 1 << 20,
          "The buckets of PyTorch's rule (an imitation of the rule).")
      .def_static(
          "single",
          [](std::vector<TensorSpec> tensors) { return single_bucket_plan(std::move(tensors)); },
          "tensors"_a,
          "One bucket per dtype.")
      .def("__repr__", [](const Plan& self) {
        return "<Plan: " + format(self.bytes()) + " in " + std::to_string(self.tensors.size()) +
               " tensors, " + std::to_string(self.buckets.size()) + " buckets" +
               (self.origin.empty() ? "" : ", " + self.origin) + ">";
      });
  add_forms(plan, plan_from_json);
}

void bind_step_profile(nb::module_& module) {
  nb::class_<ProfileTensor>(module, "ProfileTensor")
      .def_ro("name", &ProfileTensor::name)
      .def_ro("shape", &ProfileTensor::shape)
      .def_prop_ro("dtype", [](const ProfileTensor& self) { return to_string(self.dtype); })
      .def_prop_ro("bytes", [](const ProfileTensor& self) { return self.bytes().count(); })
      .def_prop_ro("ready_s", [](const ProfileTensor& self) { return self.ready.count(); });

  nb::class_<StepProfile> profile(
      module, "StepProfile", "What one step of a model does on one rank, without communication.");
  profile.def_ro("model", &StepProfile::model)
      .def_ro("batch", &StepProfile::batch)
      .def_ro("assumptions", &StepProfile::assumptions)
      .def_ro("tensors", &StepProfile::tensors)
      .def_prop_ro("basis", [](const StepProfile& self) { return to_string(self.basis); })
      .def_prop_ro("bytes", [](const StepProfile& self) { return self.bytes().count(); })
      .def_prop_ro("forward_end_s",
                   [](const StepProfile& self) { return self.forward_end.count(); })
      .def_prop_ro("backward_end_s",
                   [](const StepProfile& self) { return self.backward_end.count(); })
      .def_prop_ro("compute_end_s",
                   [](const StepProfile& self) { return self.compute_end.count(); })
      .def_static(
          "of_model",
          [](std::string_view text, std::string_view where, double flops, std::int64_t batch) {
            return profile_from_model_json(text, where, {flops, batch});
          },
          "text"_a,
          "where"_a = "text",
          "device_flops"_a = AssumedDevice{}.flops_per_s,
          "batch"_a = 0,
          "From the JSON of a model table, with times as a device of that rate would take.")
      .def_static(
          "named",
          [](std::string_view name, double flops, std::int64_t batch) {
            return profile_from_model_json(model_json(name), name, {flops, batch});
          },
          "name"_a,
          "device_flops"_a = AssumedDevice{}.flops_per_s,
          "batch"_a = 0,
          "Of a model that ships with the library: resnet50, gpt2_124m...")
      .def_static("model_names", &model_names)
      .def("__repr__", [](const StepProfile& self) {
        return "<StepProfile " + self.model + ": " + format(self.bytes()) + " in " +
               std::to_string(self.tensors.size()) + " tensors, step " + format(self.compute_end) +
               " (" + std::string(to_string(self.basis)) + ")>";
      });
  add_forms(profile, step_profile_from_json);
}

void bind_machine(nb::module_& module) {
  nb::class_<Level>(module, "Level")
      .def_ro("name", &Level::name)
      .def_ro("group_size", &Level::group_size)
      .def_prop_ro("latency_s", [](const Level& self) { return self.latency.count(); })
      .def_prop_ro("bandwidth_bytes_per_s",
                   [](const Level& self) { return self.bandwidth.value(); });

  nb::class_<Machine> machine(module, "Machine", "How a machine communicates.");
  machine.def_ro("name", &Machine::name)
      .def_ro("levels", &Machine::levels)
      .def_ro("source", &Machine::source)
      .def_ro("compute_slowdown", &Machine::compute_slowdown)
      .def_prop_ro("basis", [](const Machine& self) { return to_string(self.basis); })
      .def_prop_ro("ranks", &Machine::ranks)
      .def_static("from_text",
                  &machine_from_text,
                  "text"_a,
                  "A preset (`dgx-h100x4`) or RANKS@BANDWIDTH,LATENCY (`4@5Gbit/s,50us`).")
      .def_static("preset_names", &preset_names)
      .def("__repr__", [](const Machine& self) {
        return "<Machine " + self.name + ": " + std::to_string(self.ranks()) + " ranks, " +
               std::string(to_string(self.basis)) + ">";
      });
  add_forms(machine, machine_from_json);
}

void bind_summary(nb::module_& module) {
  nb::class_<BucketSummary>(module, "BucketSummary")
      .def_ro("bucket", &BucketSummary::bucket)
      .def_prop_ro("collective",
                   [](const BucketSummary& self) { return to_string(self.collective); })
      .def_prop_ro("bytes", [](const BucketSummary& self) { return self.bytes.count(); })
      .def_prop_ro("ready_s", [](const BucketSummary& self) { return seconds(self.ready); })
      .def_prop_ro("launched_s", [](const BucketSummary& self) { return self.launched.count(); })
      .def_prop_ro("started_s", [](const BucketSummary& self) { return self.started.count(); })
      .def_prop_ro("ended_s", [](const BucketSummary& self) { return self.ended.count(); })
      .def_prop_ro("exposed_s", [](const BucketSummary& self) { return self.exposed.count(); })
      .def_prop_ro("exposed_share_s",
                   [](const BucketSummary& self) { return self.exposed_share.count(); })
      .def_prop_ro("transfer_s", [](const BucketSummary& self) { return self.transfer.count(); })
      .def_prop_ro("compute_left_s",
                   [](const BucketSummary& self) { return seconds(self.compute_left); })
      .def_prop_ro("waited_for",
                   [](const BucketSummary& self) { return to_string(self.waited_for); });

  nb::class_<RankSummary>(module, "RankSummary")
      .def_ro("rank", &RankSummary::rank)
      .def_prop_ro("step_s", [](const RankSummary& self) { return self.step.count(); })
      .def_prop_ro("compute_s", [](const RankSummary& self) { return self.compute.count(); })
      .def_prop_ro("communication_s",
                   [](const RankSummary& self) { return self.communication.count(); })
      .def_prop_ro("exposed_s", [](const RankSummary& self) { return self.exposed.count(); });

  nb::class_<CodecSummary>(module, "CodecSummary", "All exchanges with one codec, per step.")
      .def_ro("codec", &CodecSummary::codec)
      .def_ro("exchanges", &CodecSummary::exchanges)
      .def_prop_ro("bytes", [](const CodecSummary& self) { return self.bytes.count(); })
      .def_prop_ro("exchange_s", [](const CodecSummary& self) { return self.exchange.count(); })
      .def_prop_ro("encode_s", [](const CodecSummary& self) { return self.encode.count(); })
      .def_prop_ro("wire_s", [](const CodecSummary& self) { return self.wire.count(); })
      .def_prop_ro("decode_s", [](const CodecSummary& self) { return self.decode.count(); });

  nb::class_<Summary> summary(
      module, "Summary", "The numbers that answer the question; times are medians over steps.");
  summary.def_ro("steps", &Summary::steps)
      .def_ro("ranks", &Summary::ranks)
      .def_ro("launches", &Summary::launches)
      .def_ro("buckets", &Summary::buckets)
      .def_ro("per_rank", &Summary::per_rank)
      .def_ro("codecs", &Summary::codecs)
      .def_ro("samples_per_s", &Summary::samples_per_s)
      .def_ro("scaling_efficiency", &Summary::scaling_efficiency)
      .def_prop_ro("step_s", [](const Summary& self) { return self.step.count(); })
      .def_prop_ro("step_p10_s", [](const Summary& self) { return self.step_p10.count(); })
      .def_prop_ro("step_p90_s", [](const Summary& self) { return self.step_p90.count(); })
      .def_prop_ro("compute_s", [](const Summary& self) { return self.compute.count(); })
      .def_prop_ro("communication_s",
                   [](const Summary& self) { return self.communication.count(); })
      .def_prop_ro("exposed_s", [](const Summary& self) { return self.exposed.count(); })
      .def_prop_ro("first_launch_s", [](const Summary& self) { return seconds(self.first_launch); })
      .def_prop_ro("communication_end_s",
                   [](const Summary& self) { return seconds(self.communication_end); })
      .def_prop_ro("bound_s", [](const Summary& self) { return seconds(self.bound); })
      .def_prop_ro("hidden_ratio", &Summary::hidden_ratio)
      .def_prop_ro("overlap_degree", &Summary::overlap_degree)
      .def_prop_ro("communication_ratio", &Summary::communication_ratio)
      .def_prop_ro("bound_gap_ratio", &Summary::bound_gap_ratio)
      .def("__str__", [](const Summary& self) { return text_summary(self); })
      .def("__repr__", [](const Summary& self) {
        return "<Summary: exposed " + format(self.exposed) + " of a step of " + format(self.step) +
               ", " + std::to_string(self.ranks) + " ranks, " + std::to_string(self.steps) +
               " steps>";
      });
  add_forms(summary, summary_from_json);
}

// All records as one NumPy array of structures, in place.
nb::object records_of(const nb::object& self) {
  auto& timeline = nb::cast<Timeline&>(self);
  const nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>> bytes(
      reinterpret_cast<const std::uint8_t*>(timeline.records.data()),
      {timeline.records.size() * sizeof(Record)},
      self);
  return nb::cast(bytes).attr("view")(
      nb::module_::import_("stretto._records").attr("record_dtype")());
}

void bind_timeline(nb::module_& module) {
  nb::class_<Timeline> timeline(
      module, "Timeline", "What happened, or is predicted to: records of one or more ranks.");
  timeline.def(nb::init<>())
      .def_ro("source", &Timeline::source)
      .def_ro("origin_unix_ns", &Timeline::origin_unix_ns)
      .def_ro("world_size", &Timeline::world_size)
      .def_ro("steps_total", &Timeline::steps_total)
      .def_ro("steps_recorded", &Timeline::steps_recorded)
      .def_ro("names", &Timeline::names)
      .def_prop_ro(
          "records",
          &records_of,
          nb::sig("def records(self) -> numpy.ndarray"),
          "The records as a NumPy array of structures, not copied. `name` is an index into "
          "names; `kind`, `lane`, `collective` and `algorithm` index "
          "stretto.RECORD_KINDS and so on.")
      .def("__len__", [](const Timeline& self) { return self.records.size(); })
      .def(
          "chrome_trace",
          [](const Timeline& self) { return chrome_trace(self); },
          "JSON that Perfetto and chrome://tracing open.")
      .def(
          "to_csv",
          [](const Timeline& self) { return csv_records(self); },
          "One line per record, times in nanoseconds.")
      .def(
          "draw",
          [](const Timeline& self, std::optional<std::uint32_t> step, int columns) {
            return text_timeline(self, {columns, false, step ? *step : typical_step(self)});
          },
          "step"_a = nb::none(),
          "columns"_a = 100,
          "One step as text (without `step`, a typical one): compute, communication, and what of "
          "it "
          "is exposed.")
      .def("__repr__", [](const Timeline& self) {
        return "<Timeline from " + self.source + ": " + std::to_string(self.records.size()) +
               " records of " + std::to_string(self.steps_recorded) + " steps, " +
               std::to_string(self.clocks.size()) + " of " + std::to_string(self.world_size) +
               " ranks>";
      });
  add_forms(timeline, timeline_from_json);
}

// The texts of an enumeration from 0 to `last`, for arrays that hold its numbers.
template <typename Enum>
nb::tuple texts_to(Enum last) {
  nb::list texts;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    texts.append(nb::str(std::string(to_string(static_cast<Enum>(i))).c_str()));
  }
  return nb::tuple(texts);
}

}  // namespace

void bind_nouns(nb::module_& module) {
  bind_plan(module);
  bind_step_profile(module);
  bind_machine(module);
  bind_summary(module);
  bind_timeline(module);
  module.attr("RECORD_KINDS") = texts_to(RecordKind::kAnnotation);
  module.attr("LANES") = texts_to(Lane::kHost);
  module.attr("COLLECTIVES") = texts_to(Collective::kSendRecv);
  module.attr("ALGORITHMS") = texts_to(kLastAlgorithm);
  module.def("preset_names", &preset_names);
  module.def(
      "parse_bytes",
      [](std::string_view text) { return parse_bytes(text).count(); },
      "text"_a,
      "`25M` (MiB), `25MB`, `64K`... as a number of bytes.");
  module.def(
      "format_bytes", [](std::int64_t bytes) { return format(Bytes(bytes)); }, "bytes"_a);
  module.def(
      "format_seconds", [](double time) { return format(Seconds(time)); }, "seconds"_a);
}

}  // namespace stretto::python
