// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "bindings.hpp"
#include "stretto/comm/callback/callback.hpp"
#include "stretto/comm/connect.hpp"
#include "stretto/comm/mpi/mpi.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/comm/shm/shm.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/run/plan_agreement.hpp"
#include "stretto/run/recorder.hpp"
#include "stretto/run/session.hpp"
#include "stretto/run/text_exchange.hpp"

namespace stretto::python {
namespace {

Nanoseconds nanoseconds(double time_s) {
  return std::chrono::duration_cast<Nanoseconds>(Seconds(time_s));
}

ShmOptions shm_options(double timeout_s,
                       double connect_timeout_s,
                       const std::optional<Machine>& emulate) {
  ShmOptions options;
  options.timeout = nanoseconds(timeout_s);
  options.connect_timeout = nanoseconds(connect_timeout_s);
  options.emulate = emulate;
  return options;
}

BufferView buffer(std::uintptr_t address, std::size_t count, std::string_view dtype) {
  // Addresses come from Tensor.data_ptr(); NOLINTNEXTLINE(performance-no-int-to-ptr)
  return {reinterpret_cast<std::byte*>(address), count, dtype_from_string(dtype), {}};
}

ReduceOp op_from_string(std::string_view name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    if (to_string(op) == name) {
      return op;
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such reduction", "op", std::string(name), "sum, mean, min or max", ""});
}

ErrorCode code_from_string(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kReadyTwice); ++i) {
    if (to_string(static_cast<ErrorCode>(i)) == name) {
      return static_cast<ErrorCode>(i);
    }
  }
  return ErrorCode::kBackend;
}

// Kept by std::functions that threads without the GIL may copy and destroy.
std::shared_ptr<nb::callable> shared_callable(nb::callable callable) {
  return {new nb::callable(std::move(callable)), [](nb::callable* held) {
            const nb::gil_scoped_acquire gil;
            delete held;
          }};
}

// A communicator whose operations `start(kind, address, count, dtype, op, peer, done)` begins.
// `done()` or `done(code, message)` ends one; it may be called from any thread.
std::unique_ptr<Communicator> callback_communicator(int rank,
                                                    int size,
                                                    nb::callable start,
                                                    double timeout_s) {
  const std::shared_ptr<nb::callable> shared = shared_callable(std::move(start));
  CallbackOptions options;
  options.timeout = nanoseconds(timeout_s);
  return make_callback_communicator(
      rank,
      size,
      [shared](const detail::Call& call, const CallbackDone& done) {
        const nb::gil_scoped_acquire gil;
        const nb::object python_done = nb::cpp_function(
            [done](const std::optional<std::string>& code, const std::string& message) {
              // What waits for the result needs no GIL, but the waiting thread may.
              const nb::gil_scoped_release release;
              done(code ? std::optional(Error(code_from_string(*code), message)) : std::nullopt);
            },
            "code"_a = nb::none(),
            "message"_a = "");
        (*shared)(to_string(call.kind),
                  reinterpret_cast<std::uintptr_t>(call.data.data),
                  call.data.count,
                  to_string(call.data.dtype),
                  to_string(call.op),
                  call.peer,
                  python_done);
      },
      options);
}

void bind_communicator(nb::module_& module) {
  nb::class_<Communicator>(module, "Communicator", "A fixed group of ranks.")
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("backend", [](const Communicator& self) { return self.backend(); })
      .def_prop_ro(
          "keeps_order",
          [](const Communicator& self) { return self.ordering() == Ordering::kTotal; },
          "Operations match by order: every rank must start the same ones in one order.")
      .def(
          "all_reduce",
          [](Communicator& self,
             std::uintptr_t address,
             std::size_t count,
             std::string_view dtype,
             std::string_view op) {
            self.all_reduce(buffer(address, count, dtype), op_from_string(op)).wait();
          },
          "address"_a,
          "count"_a,
          "dtype"_a,
          "op"_a = "sum",
          "Combines host memory over all ranks, in place.",
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "broadcast",
          [](Communicator& self,
             std::uintptr_t address,
             std::size_t count,
             std::string_view dtype,
             int root) { self.broadcast(buffer(address, count, dtype), root).wait(); },
          "address"_a,
          "count"_a,
          "dtype"_a,
          "root"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "barrier",
          [](Communicator& self) { self.barrier().wait(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("broadcast_text",
           &broadcast_text,
           "text"_a,
           "root"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("agree_on_text",
           &agree_on_text,
           "what"_a,
           "mine"_a,
           "Throws the same Mismatch on every rank unless all say the same.",
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "agree_on_plan",
          &agree_on_plan,
          "plan"_a,
          "Throws the same Mismatch on every rank, naming the first tensor or bucket that differs.",
          nb::call_guard<nb::gil_scoped_release>())
      .def("gather_timelines",
           &gather_timelines,
           "mine"_a,
           "All ranks' timelines as one, on rank 0. Collective.",
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "abort",
          [](Communicator& self,
             std::string_view code,
             std::string message,
             std::string where,
             std::string help,
             std::uint32_t step) {
            self.abort(Error(code_from_string(code),
                             {std::move(message), std::move(where), {}, {}, std::move(help)}),
                       step,
                       0xffffffffU);
          },
          "code"_a,
          "message"_a,
          "where"_a = "",
          "help"_a = "",
          "step"_a = 0,
          "Makes everything in flight and to come fail, here and on all peers.",
          nb::call_guard<nb::gil_scoped_release>());

  module.def(
      "connect",
      [](double timeout_s, double connect_timeout_s, const std::optional<Machine>& emulate) {
        return connect(shm_options(timeout_s, connect_timeout_s, emulate));
      },
      "timeout_s"_a = 30.0,
      "connect_timeout_s"_a = 60.0,
      "emulate"_a = nb::none(),
      "Joins the job that stretto run, torchrun, mpirun or srun started this process in.",
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "connect_mpi",
      [](double timeout_s) { return connect_mpi({.timeout = nanoseconds(timeout_s)}); },
      "timeout_s"_a = 30.0,
      "Joins the ranks of MPI_COMM_WORLD, which mpirun started.",
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "connect_shm",
      [](const std::string& directory,
         int rank,
         int size,
         double timeout_s,
         double connect_timeout_s,
         const std::optional<Machine>& emulate) {
        return connect_shm(
            directory, rank, size, shm_options(timeout_s, connect_timeout_s, emulate));
      },
      "directory"_a,
      "rank"_a,
      "size"_a,
      "timeout_s"_a = 30.0,
      "connect_timeout_s"_a = 60.0,
      "emulate"_a = nb::none(),
      "Joins `size` ranks that meet in a private directory of this host.",
      nb::call_guard<nb::gil_scoped_release>());
  module.def("callback_communicator",
             &callback_communicator,
             "rank"_a,
             "size"_a,
             "start"_a,
             "timeout_s"_a = 1800.0);
  module.def("rank_environment", [] {
    const RankEnvironment environment = detect_rank_environment(process_environment());
    nb::dict dict;
    dict["launcher"] = environment.launcher;
    dict["rank"] = environment.rank;
    dict["world_size"] = environment.world_size;
    dict["local_rank"] = environment.local_rank;
    dict["local_world_size"] = environment.local_world_size;
    return dict;
  });
}

constexpr std::int64_t kNone = -1;

/// A Session as Python uses it.
struct PythonSession {
  PythonSession(Communicator& communicator, Plan plan, const SessionOptions& options)
      : session(communicator, std::move(plan), options),
        starts_in_python(communicator.ordering() == Ordering::kTotal) {}
  Session session;
  /// ready() may call back into Python, and another thread's ready() may wait for it meanwhile.
  bool starts_in_python;
  /// In the open step; for messages, and to tell whether there is anything to finish.
  std::atomic<std::int64_t> last_ready{kNone};
};

void bind_session(nb::module_& module) {
  nb::class_<PythonSession>(
      module, "Session", "Reduces gradients over all ranks while backward still computes them.")
      .def(
          "__init__",
          [](PythonSession* self,
             Communicator& communicator,
             Plan plan,
             std::string_view op,
             std::string_view schedule,
             int streams,
             std::uint32_t verify_every,
             std::size_t record_steps,
             bool reduce_first,
             std::uint32_t codec_start,
             double optimizer_momentum) {
            SessionOptions options;
            options.op = op_from_string(op);
            options.schedule = schedule_from_string(schedule);
            options.streams = streams;
            options.verify_every = verify_every;
            options.record_steps = record_steps;
            options.reduce_first = reduce_first;
            options.codec_start = codec_start;
            options.optimizer_momentum = optimizer_momentum;
            const nb::gil_scoped_release release;
            new (self) PythonSession(communicator, std::move(plan), options);
          },
          "communicator"_a,
          "plan"_a,
          "op"_a = "mean",
          "schedule"_a = "overlap",
          "streams"_a = 1,
          "verify_every"_a = 0,
          "record_steps"_a = 50,
          "reduce_first"_a = false,
          "codec_start"_a = 0,
          "optimizer_momentum"_a = 0.0,
          nb::keep_alive<1, 2>())
      .def_prop_ro("plan", [](const PythonSession& self) { return self.session.plan(); })
      .def_prop_ro("step", [](const PythonSession& self) { return self.session.step(); })
      .def(
          "gradient",
          [](const PythonSession& self, std::size_t i) {
            const BufferView view = self.session.gradient(i);
            return std::pair(reinterpret_cast<std::uintptr_t>(view.data), view.size_bytes());
          },
          "i"_a,
          "Address and bytes of where tensor i's gradient is to be written.")
      .def(
          "ready",
          [](PythonSession& self, std::size_t i) {
            self.last_ready.store(static_cast<std::int64_t>(i), std::memory_order_relaxed);
            if (self.starts_in_python) {
              const nb::gil_scoped_release release;
              self.session.ready(i);
            } else {
              self.session.ready(i);
            }
          },
          "i"_a)
      .def_prop_ro(
          "last_ready",
          [](const PythonSession& self) { return self.last_ready.load(std::memory_order_relaxed); },
          "The last gradient that was reported in the open step; -1 if none was.")
      .def_prop_ro(
          "awaited",
          [](const PythonSession& self) { return self.session.awaited(); },
          "The bucket that finish() is waiting for right now, if any; for another thread.")
      .def(
          "finish",
          [](PythonSession& self) {
            self.last_ready.store(kNone, std::memory_order_relaxed);
            self.session.finish();
          },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "wait",
          [](PythonSession& self, std::size_t i) { self.session.wait(i); },
          "i"_a,
          "Under the schedule priority: returns when tensor i's gradient of the last finished step "
          "is here. Before the next ready(), for every tensor.",
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "drain",
          [](PythonSession& self) { self.session.drain(); },
          "wait() for all that still travels.",
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "gradient_norm",
          [](PythonSession& self) { return self.session.gradient_norm(); },
          "Euclidean norm of all gradients of the last finished step, in fp64, the same on all "
          "ranks. Collective, between finish() and the next ready().",
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "replan",
          [](PythonSession& self, Plan plan) { self.session.replan(std::move(plan)); },
          "plan"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "compression_state",
          [](const PythonSession& self) {
            const std::vector<std::byte> state = self.session.compression_state();
            return nb::bytes(reinterpret_cast<const char*>(state.data()), state.size());
          },
          "What codecs have not sent yet on this rank, for restore_compression(); empty without "
          "codecs.")
      .def(
          "restore_compression",
          [](PythonSession& self, const std::vector<nb::bytes>& states) {
            std::vector<std::vector<std::byte>> bytes;
            for (const nb::bytes& state : states) {
              const auto* const from = reinterpret_cast<const std::byte*>(state.c_str());
              bytes.emplace_back(from, from + state.size());
            }
            const nb::gil_scoped_release release;
            self.session.restore_compression(bytes);
          },
          "states"_a,
          "Takes up what an older job saved: this rank's state, or all ranks' if their number "
          "changed.")
      .def(
          "undo_compression",
          [](PythonSession& self) { self.session.undo_compression(); },
          "The optimizer leaves the last step out: what it sent counts as not sent.")
      .def(
          "rescale_compression",
          [](PythonSession& self, double factor) { self.session.rescale_compression(factor); },
          "factor"_a,
          "Gradients are from now on so many times as large, for another loss scale.")
      .def(
          "compression",
          [](const PythonSession& self) {
            const Session::Compression done = self.session.compression();
            nb::dict result;
            result["exchanges"] = done.counters.exchanges;
            result["not_finite"] = done.counters.not_finite;
            result["gradient_bytes"] = done.counters.dense_bytes;
            result["sent_bytes"] = done.counters.sent_bytes;
            result["encode_s"] = Seconds(done.counters.encode).count();
            result["decode_s"] = Seconds(done.counters.decode).count();
            result["residual_norm"] = done.residual_norm;
            return result;
          },
          "What codecs did on this rank since reset_recording().")
      .def(
          "record",
          [](PythonSession& self,
             std::string_view kind,
             std::string_view name,
             std::int64_t begin_ns,
             std::int64_t end_ns) {
            for (const RecordKind each : {RecordKind::kForward,
                                          RecordKind::kBackward,
                                          RecordKind::kOptimizer,
                                          RecordKind::kCompute}) {
              if (to_string(each) == kind) {
                self.session.recorder().add(each, name, Nanoseconds(begin_ns), Nanoseconds(end_ns));
                return;
              }
            }
            throw Error(ErrorCode::kInvalidArgument,
                        {"no such kind of compute",
                         "kind",
                         std::string(kind),
                         "forward, backward, optimizer or compute",
                         ""});
          },
          "kind"_a,
          "name"_a,
          "begin_ns"_a,
          "end_ns"_a,
          "Adds compute to the open step; times as time.monotonic_ns() has them.")
      .def("reset_recording", [](PythonSession& self) { self.session.reset_recording(); })
      .def(
          "timeline",
          [](const PythonSession& self) { return self.session.timeline(); },
          "This rank's records.");
}

void bind_recorder(nb::module_& module) {
  nb::class_<Recorder>(
      module, "Recorder", "Collects one rank's Timeline, step by step; times are monotonic_ns().")
      .def(
          "__init__",
          [](Recorder* self, int rank, int world_size, std::size_t max_steps) {
            new (self) Recorder(rank, world_size, max_steps, origin_now());
          },
          "rank"_a,
          "world_size"_a,
          "max_steps"_a = 50)
      .def(
          "begin_step",
          [](Recorder& self, std::uint32_t number, std::int64_t at_ns) {
            self.begin_step(number, Nanoseconds(at_ns));
          },
          "number"_a,
          "at_ns"_a)
      .def(
          "end_step",
          [](Recorder& self, std::int64_t at_ns) { self.end_step(Nanoseconds(at_ns)); },
          "at_ns"_a)
      .def(
          "add",
          [](Recorder& self,
             std::string_view kind,
             std::string_view name,
             std::int64_t begin_ns,
             std::int64_t end_ns) {
            for (int i = 0; i <= static_cast<int>(RecordKind::kWait); ++i) {
              const auto each = static_cast<RecordKind>(i);
              if (to_string(each) == kind) {
                self.add(each, name, Nanoseconds(begin_ns), Nanoseconds(end_ns));
              }
            }
          },
          "kind"_a,
          "name"_a,
          "begin_ns"_a,
          "end_ns"_a)
      .def(
          "add_exchange",
          [](Recorder& self,
             std::string_view name,
             std::uint32_t bucket,
             std::int64_t bytes,
             std::uint32_t link,
             std::int64_t launched_ns,
             std::int64_t ended_ns) {
            Record record;
            record.name = self.name_id(name);
            record.bucket = record.sequence = bucket;
            record.bytes = bytes;
            record.link = link;
            record.collective = Collective::kAllReduce;
            record.lane = Lane::kCompute;
            record.kind = RecordKind::kReady;
            record.begin_ns = record.end_ns = launched_ns;
            self.add(record);
            record.lane = Lane::kCommunication;
            record.kind = RecordKind::kLaunched;
            self.add(record);
            record.kind = RecordKind::kCommunication;
            record.end_ns = ended_ns;
            self.add(record);
          },
          "name"_a,
          "bucket"_a,
          "bytes"_a,
          "link"_a,
          "launched_ns"_a,
          "ended_ns"_a,
          "An all_reduce of a bucket, ready and launched at once.")
      .def("timeline", &Recorder::timeline)
      .def("clear", &Recorder::clear);
}

}  // namespace

void bind_runtime(nb::module_& module) {
  bind_communicator(module);
  bind_session(module);
  bind_recorder(module);
}

}  // namespace stretto::python
