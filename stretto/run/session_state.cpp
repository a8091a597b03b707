// SPDX-License-Identifier: Apache-2.0
// What outlives a Session.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/compress/residual_state.hpp"
#include "stretto/run/session_impl.hpp"

namespace stretto {
namespace {

/// Tensors of f32 lie one after the other in their arena.
struct Place {
  const TensorSpec* tensor = nullptr;
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Place> places_of(const Plan& plan) {
  std::vector<Place> places;
  const std::vector<std::int64_t> offsets = plan.offsets();
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].dtype == DType::kF32) {
      const auto begin = static_cast<std::size_t>(offsets[i]);
      places.push_back(
          {&plan.tensors[i], begin, begin + static_cast<std::size_t>(plan.tensors[i].elements())});
    }
  }
  return places;
}

}  // namespace

void Session::Impl::check_between_steps(const char* what) const {
  const bool open = step_is_open();
  const bool travels = unsettled.load(std::memory_order_relaxed);
  if (open || travels) {
    throw Error(ErrorCode::kInvalidArgument,
                {std::string(what) + " between steps only",
                 "step " + std::to_string(step),
                 open ? "gradients ready already" : "gradients on their way",
                 "right after finish() (under priority, drain())",
                 ""});
  }
}

std::vector<std::byte> Session::compression_state() const {
  impl_->check_between_steps("residuals are saved");
  if (!impl_->residuals) {
    return {};
  }
  ResidualState state;
  state.world = static_cast<std::uint32_t>(impl_->communicator.size());
  state.rank = static_cast<std::uint32_t>(impl_->communicator.rank());
  state.step = impl_->codec_step();
  state.plan_hash = impl_->plan.hash();
  const std::vector<Impl::Momentum> momenta = impl_->momenta();
  for (const Place& place : places_of(impl_->plan)) {
    const std::span<const float> own = impl_->residuals->own_part(place.begin, place.end);
    const std::span<const float> sums = impl_->residuals->sums_part(place.begin, place.end);
    const std::span<const float> velocity = impl_->residuals->velocity_part(place.begin, place.end);
    ResidualState::Tensor tensor{place.tensor->name, {own.begin(), own.end()}, {}, {}, {}};
    const auto any = [](std::span<const float> values) {
      return std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0F; });
    };
    if (any(sums)) {
      tensor.sums.assign(sums.begin(), sums.end());
    }
    if (any(velocity)) {
      tensor.velocity.assign(velocity.begin(), velocity.end());
    }
    for (const Impl::Momentum& part : momenta) {
      const std::size_t begin = std::max(part.begin, place.begin);
      const std::size_t end = std::min(part.end, place.end);
      if (begin < end) {
        tensor.momenta.push_back({begin - place.begin, end - place.begin, part.momentum});
      }
    }
    std::sort(tensor.momenta.begin(), tensor.momenta.end(), [](const auto& a, const auto& b) {
      return a.begin < b.begin;
    });
    state.tensors.push_back(std::move(tensor));
  }
  for (const Impl::BucketState& bucket : impl_->buckets) {
    const auto directions =
        bucket.compressed ? bucket.compressed->directions() : std::span<const float>();
    state.directions.emplace_back(directions.begin(), directions.end());
  }
  return to_bytes(state);
}

void Session::restore_compression(std::span<const std::vector<std::byte>> states) {
  impl_->check_between_steps("residuals are taken up");
  std::vector<ResidualState> older;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!states[i].empty()) {
      older.push_back(
          residual_state_from_bytes(states[i], "state of residuals " + std::to_string(i)));
    }
  }
  if (older.empty()) {
    return;
  }
  const ResidualState state = remapped(older,
                                       static_cast<std::uint32_t>(impl_->communicator.rank()),
                                       static_cast<std::uint32_t>(impl_->communicator.size()),
                                       impl_->options.op == ReduceOp::kMean);
  const std::vector<Place> places = places_of(impl_->plan);
  std::vector<std::pair<Place, const ResidualState::Tensor*>> found;
  for (const ResidualState::Tensor& tensor : state.tensors) {
    const auto place = std::find_if(places.begin(), places.end(), [&](const Place& one) {
      return one.tensor->name == tensor.name && one.end - one.begin == tensor.own.size();
    });
    if (place == places.end() || state.tensors.size() != places.size()) {
      throw Error(ErrorCode::kMismatch,
                  {"the saved residuals are of another model",
                   "tensor '" + tensor.name + "'",
                   std::to_string(tensor.own.size()) + " elements, " +
                       std::to_string(state.tensors.size()) + " tensors of f32",
                   "those of this model, " + std::to_string(places.size()),
                   "Restore what the same model has saved."});
    }
    found.emplace_back(*place, &tensor);
  }
  if (!impl_->residuals) {
    impl_->make_residuals();
  }
  std::vector<Impl::Momentum> before;
  for (const auto& [place, tensor] : found) {
    impl_->residuals->set(place.begin, tensor->own, tensor->sums, tensor->velocity);
    for (const ResidualState::Momentum& part : tensor->momenta) {
      before.push_back({place.begin + static_cast<std::size_t>(part.begin),
                        place.begin + static_cast<std::size_t>(part.end),
                        part.momentum});
    }
  }
  if (state.plan_hash != impl_->plan.hash()) {  // other sums are this rank's to make
    impl_->residuals->settle();
    impl_->convert_momentum(before);
  } else {
    for (std::size_t b = 0; b < std::min(state.directions.size(), impl_->buckets.size()); ++b) {
      if (impl_->buckets[b].compressed) {
        impl_->buckets[b].compressed->set_directions(state.directions[b]);
      }
    }
  }
  impl_->can_undo = false;
  for (const Impl::BucketState& bucket : impl_->buckets) {
    if (bucket.compressed) {
      bucket.compressed->residuals_changed();
    }
  }
  impl_->find_debts();
  impl_->codec_steps_before = state.step - impl_->step;
  impl_->encodes = impl_->codec_step() >= impl_->options.codec_start;
}

void Session::rescale_compression(double factor) {
  impl_->check_between_steps("residuals are scaled");
  const auto as_float = static_cast<float>(factor);
  if (!std::isfinite(as_float) || as_float <= 0.0F) {
    throw Error(ErrorCode::kInvalidArgument,
                {"residuals cannot be scaled by this",
                 "rescale_compression()",
                 std::to_string(factor),
                 "new loss scale / old one: finite and above 0",
                 ""});
  }
  if (impl_->residuals && as_float != 1.0F) {
    impl_->residuals->scale(as_float);
  }
}

}  // namespace stretto
