# SPDX-License-Identifier: Apache-2.0
"""Codecs under DDP and under torch's own, on two ranks."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stretto
import stretto.torch
from stretto.torch._codecs import torch_codec
from stretto.torch._memory import over_memory

from conftest import TIMEOUT_S
from training import deep, deep_loss, noise, train


def make(**options):
    torch.manual_seed(7)
    return stretto.torch.DDP(deep(4), timeout_s=TIMEOUT_S, **options)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def same_everywhere(tensor):
    others = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(others, tensor)
    return all(torch.equal(tensor, other) for other in others)


@pytest.mark.parametrize("codec", ["int8", "topk:0.1", "fp16", "powersgd:4"])
def test_ranks_agree_and_follow_the_exact_run(codec):
    exact = make()
    train(exact, deep_loss, steps=8)
    model = make(compress=codec, bucket_cap_mb=0.03)
    train(model, deep_loss, steps=8)
    assert {b.codec for b in model.plan.buckets} == {str(stretto._core.CodecSpec(codec))}
    assert same_everywhere(weights(model))
    far = (weights(model) - weights(exact)).norm() / (weights(exact) - weights(make())).norm()
    assert 0 < far < {"int8": 0.02, "topk:0.1": 0.9, "fp16": 0.002, "powersgd:4": 0.9}[codec]
    done = model.compression()
    assert done["exchanges"] > 0 and done["sent_bytes"] < done["gradient_bytes"]
    assert done["residual_norm"] > 0


def test_some_stay_exact_and_nonsense_is_said_at_once():
    model = make(compress="int8", compress_except=["*.bias"], bucket_cap_mb=0.001)
    train(model, deep_loss, steps=2)
    for bucket, b in zip(model.plan.buckets, range(len(model.plan.buckets))):
        has_bias = any(name.endswith(".bias") for name in model.plan.tensor_names(b))
        assert bucket.codec == ("none" if has_bias else "int8")
    with pytest.raises(stretto.InvalidArgument, match="int9"):
        make(compress="int9")
    with pytest.raises(stretto.Unavailable, match="save-plan"):
        make(compress="auto:int8")
    with pytest.raises(stretto.Unavailable, match="as they are"):
        make(compress="int8", backend="process_group")
    with pytest.raises(stretto.Mismatch, match="compress=int"):
        make(compress=f"int{4 + 4 * dist.get_rank()}")


@pytest.mark.parametrize("options, words", [
    ({"compress": "int8", "compress_except": ["*"]}, "nothing to compress"),
    ({"compress": "int8", "verify_every": 2}, "verify_every"),
])
def test_what_cannot_go_together_is_said_on_all_ranks(options, words):
    model = make(**options)
    with pytest.raises(stretto.InvalidArgument, match=words):
        train(model, deep_loss, steps=1)


def test_the_codec_none_is_none_and_a_plan_may_name_codecs():
    model = make(compress="none", backend="process_group")
    train(model, deep_loss, steps=1)
    plan = model.plan.with_codec("int8")
    planned = make(plan=plan)
    train(planned, deep_loss, steps=2)  # the first is not recorded
    assert {b.codec for b in planned.plan.buckets} == {"int8"}
    assert planned.compression()["exchanges"] > 0


@pytest.mark.parametrize("codec", ["topk:0.05", "powersgd:2"])
def test_a_step_that_the_optimizer_leaves_out_counts_as_not_sent(codec):
    model = make(compress=codec)
    with pytest.raises(stretto.InvalidArgument, match="no finished step"):
        model.undo_compression()
    train(model, deep_loss, steps=2)
    before = model.compression_state()
    first = torch.cat([p.grad.flatten() for p in model.module.parameters()]).clone()
    for again in range(2):
        model.zero_grad()
        deep_loss(model, 5).backward()
        arrived = torch.cat([p.grad.flatten() for p in model.module.parameters()]).clone()
        assert again == 0 or torch.equal(arrived, first)  # the step anew, bit by bit
        first = arrived
        model.undo_compression()
    with pytest.raises(stretto.InvalidArgument):
        model.undo_compression()
    assert model.compression_state()[28:-8] == before[28:-8]  # but for the step in its head, and the checksum


@pytest.mark.parametrize("codec", ["topk:0.05", "powersgd:2"])
def test_residuals_are_saved_and_training_goes_on_as_if_it_had_not_stopped(codec):
    model = make(compress=codec)
    stepper = torch.optim.SGD(model.parameters(), lr=0.05)

    def steps(model, stepper, first, last):
        for step in range(first, last):
            stepper.zero_grad()
            deep_loss(model, step).backward()
            stepper.step()

    steps(model, stepper, 0, 4)
    saved, state, plan = weights(model).clone(), model.compression_state(), model.plan
    parameters = {n: p.detach().clone() for n, p in model.module.named_parameters()}
    steps(model, stepper, 4, 7)
    again = make(compress=codec, plan=plan)
    again.module.load_state_dict(parameters)
    assert torch.equal(weights(again), saved)
    again.load_compression_state(state)
    assert again.compression_state() == state
    steps(again, torch.optim.SGD(again.parameters(), lr=0.05), 4, 7)
    assert torch.equal(weights(again), weights(model))
    # Without it, another result: the state is worth saving.
    forgetful = make(compress=codec, plan=plan)
    forgetful.module.load_state_dict(parameters)
    steps(forgetful, torch.optim.SGD(forgetful.parameters(), lr=0.05), 4, 7)
    assert not torch.equal(weights(forgetful), weights(model))
    with pytest.raises(stretto.ParseError):
        again.load_compression_state(state[:-1])
    # What cannot be taken up before the first step fails there, on every rank.
    damaged = make(compress=codec, plan=plan)
    damaged.load_compression_state(state if dist.get_rank() == 0 else state[:-1])
    with pytest.raises(stretto.Error, match="cut off|damaged"):
        train(damaged, deep_loss, steps=1)


def test_a_new_layout_keeps_what_was_not_sent():
    model = make(compress="topk:0.05")
    train(model, deep_loss, steps=3)
    norm = model.compression()["residual_norm"]
    assert norm > 0
    state = model.compression_state()
    model.replan()  # learns the order anew
    assert model.compression_state() == state
    train(model, deep_loss, steps=1)
    assert model.compression()["residual_norm"] > 0.3 * norm


# ---- the hook ----


def test_a_million_normal_gradients_by_hand():
    """What is right of top-1 % and of int8, for numpy's default_rng(42): counts, energies and errors."""
    numpy = pytest.importorskip("numpy")
    gradient = torch.from_numpy(numpy.random.default_rng(42).standard_normal(1_000_000).astype(numpy.float32))
    topk = torch_codec("topk:0.01")
    wire = topk.encode(gradient)
    assert wire.numel() == 8 * 10_000  # 50 times less; indices of 64 bits would make it 33
    sent = topk.decode(wire, gradient.numel())
    kept = sent != 0
    assert int(kept.sum()) == 10_000
    assert float(sent[kept].abs().min()) == pytest.approx(2.581904888153076)
    left = gradient - sent
    assert float(left[~kept].abs().max()) <= float(sent[kept].abs().min())
    assert float(gradient.double().square().sum()) == pytest.approx(1_000_965.53, rel=1e-6)
    assert float(left.double().square().sum()) == pytest.approx(916_048.98, rel=1e-6)
    wanted = gradient * 0.9 + left
    second = wanted - topk.decode(topk.encode(wanted), gradient.numel())
    assert float(second.double().square().sum()) == pytest.approx(3_160_292.26, rel=1e-5)
    # In a signed byte from -127 to 127 nothing wraps: errors are half a step at most.
    int8 = torch_codec("int8")
    error = int8.decode(int8.encode(gradient), gradient.numel()) - gradient
    assert float(error.abs().max()) <= float(gradient.abs().max()) / 254 * 1.0001
    assert float(error.norm() / gradient.norm()) < 0.011236  # what one step for all of it would lose


@pytest.mark.parametrize("codec", ["fp16", "bf16", "int8", "onebit", "topk:0.1", "topk:3"])
def test_hook_codecs_lose_nothing_but_time(codec):
    """Sum of what was decoded + residual = sum of what was given."""
    made = torch_codec(codec)
    generator = torch.Generator().manual_seed(3)
    given, got, residual = torch.zeros(3000), torch.zeros(3000), torch.zeros(3000)
    for _ in range(50):
        gradient = torch.randn(3000, generator=generator) * torch.logspace(-3, 1, 3000)
        wanted = gradient + residual
        decoded = made.decode(made.encode(wanted), 3000)
        residual = wanted - decoded
        given, got = given + gradient, got + decoded
    torch.testing.assert_close(got + residual, given, rtol=1e-4, atol=1e-3)
    zero = made.decode(made.encode(torch.zeros(3000)), 3000)
    assert torch.equal(zero, torch.zeros(3000))
    bad = torch.ones(3000)
    bad[1234] = math.inf
    assert not made.decode(made.encode(bad), 3000).isfinite().all()


@pytest.mark.parametrize("codec", ["int8", "fp16", "bf16", "topk:0.1"])
def test_hook_codecs_are_those_of_the_library(codec):
    """Of equal gradients the mean is what one of them decodes to; sums of two lie on the grid of one."""
    values = torch.randn(1024, generator=torch.Generator().manual_seed(5))  # a part of 512 for each rank
    model = make()
    plan = stretto.Plan.single([stretto.TensorSpec("x", [1024], "f32")]).with_codec(codec)
    session = stretto._core.Session(model._communicator, plan)
    gradient = over_memory(session.gradient(0)[0], 1024, torch.float32, session)
    gradient.copy_(values)
    session.ready(0)
    session.finish()
    made = torch_codec(codec)
    assert torch.equal(gradient, made.decode(made.encode(values), 1024))


@pytest.mark.parametrize("codec", ["int8", "topk:0.2"])
def test_the_hook_trains_with_a_codec(codec):
    def ddp(**options):
        torch.manual_seed(7)
        model = DistributedDataParallel(deep(4), bucket_cap_mb=0.03)
        state = stretto.torch.HookState(model, **options)
        model.register_comm_hook(state, stretto.torch.hook)
        return model, state

    exact, _ = ddp()
    model, state = ddp(compress=codec)
    train(exact, deep_loss, steps=6)
    train(model, deep_loss, steps=6)
    assert same_everywhere(weights(model))
    start = torch.cat([p.detach().flatten() for p in ddp()[0].parameters()])
    far = (weights(model) - weights(exact)).norm() / (weights(exact) - start).norm()
    assert 0 < far < {"int8": 0.02, "topk:0.2": 0.8}[codec]
    kept = state.state_dict()
    assert set(kept) == {n for n, _ in model.module.named_parameters()}
    assert sum(float(t.norm()) for t in kept.values()) > 0
    other, other_state = ddp(compress=codec)
    other_state.load_state_dict(kept)
    assert all(torch.equal(t, kept[n]) for n, t in other_state.state_dict().items())
    with pytest.raises(stretto.InvalidArgument, match="no such"):
        other_state.load_state_dict({"no such": torch.zeros(3)})
    with pytest.raises(stretto.InvalidArgument, match="64 elements"):
        other_state.load_state_dict({"0.bias": torch.zeros(3)})
    for codec in "int4", "powersgd:4":
        with pytest.raises(stretto.Unavailable, match=codec):
            stretto.torch.HookState(other, compress=codec)
    with pytest.raises(stretto.Mismatch, match="rank 1"):
        stretto.torch.HookState(other, compress=["int8", "onebit"][dist.get_rank()])


def test_the_hook_goes_on_bit_by_bit_and_leaves_residuals_alone_where_numbers_are_not_finite():
    def ddp():
        torch.manual_seed(7)
        model = DistributedDataParallel(deep(4), bucket_cap_mb=0.03)
        state = stretto.torch.HookState(model, compress="topk:0.05")
        model.register_comm_hook(state, stretto.torch.hook)
        return model, state

    def steps(model, first, last):
        for step in range(first, last):
            model.zero_grad()
            deep_loss(model, step).backward()
            torch.optim.SGD(model.parameters(), lr=0.05).step()

    model, state = ddp()
    steps(model, 0, 3)
    saved, kept = {n: p.detach().clone() for n, p in model.module.named_parameters()}, state.state_dict()
    steps(model, 3, 5)
    again, again_state = ddp()
    deep_loss(again, 0).backward()  # after it, torch lays its buckets out anew
    again.module.load_state_dict(saved)
    again_state.load_state_dict(kept)
    steps(again, 3, 5)
    assert torch.equal(weights(again), weights(model))

    before = state.state_dict()
    model.zero_grad()
    (deep_loss(model, 9) * (math.inf if dist.get_rank() == 1 else 1.0)).backward()
    assert not torch.cat([p.grad.flatten() for p in model.parameters()]).isfinite().all()
    assert all(torch.equal(kept, before[n]) for n, kept in state.state_dict().items())


def test_another_loss_scale_is_another_unit_and_nothing_else():
    """A GradScaler's overflow, in which ranks leave the step out, and its growth: as if the loss were not scaled."""

    def run(scales, overflow_at):
        model = make(compress="topk:0.1")
        stepper = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3, enabled=scales)
        left_out = 0
        for step in range(10):
            stepper.zero_grad()
            scaler.scale(deep_loss(model, step)).backward()
            if step == overflow_at:
                if not scales:
                    model.undo_compression()
                    continue
                with torch.no_grad():
                    next(model.module.parameters()).grad[0] = math.inf  # of the mean: on all ranks alike
            before = weights(model).clone()
            scaler.step(stepper)
            left_out += int(torch.equal(before, weights(model)))
            model.update_scaler(scaler)
        assert left_out == (1 if scales else 0)
        assert not scales or scaler.get_scale() != 1024.0
        return weights(model), model.compression()["residual_norm"] / (scaler.get_scale() if scales else 1.0)

    (plain, plain_norm), (scaled, scaled_norm) = run(False, 5), run(True, 5)
    assert torch.equal(plain, scaled)  # scales are powers of two
    assert scaled_norm == pytest.approx(plain_norm)
    with pytest.raises(stretto.InvalidArgument, match="above 0"):
        model = make(compress="int8")
        train(model, deep_loss, steps=2)
        model.rescale_compression(0.0)


def test_codecs_may_begin_later():
    exact = make()
    train(exact, deep_loss, steps=4)
    model = make(compress="onebit", compress_start=4)
    train(model, deep_loss, steps=4)
    assert torch.equal(weights(model), weights(exact))
    assert model.compression()["residual_norm"] == 0
    train(model, deep_loss, steps=2)
    assert model.compression()["residual_norm"] > 0


def test_the_hook_has_no_momentum_and_no_warm_up():
    for codec in ("topk:0.1:momentum=0.9", "topk:0.1:warmup=5"):
        with pytest.raises(stretto.Unavailable, match="the hook has no such codec"):
            torch_codec(codec)


def test_momentum_is_not_applied_twice():
    codec = "topk:0.1:momentum=0.9"

    def without(parameters):
        return torch.optim.SGD(parameters, lr=0.05)

    model = make(compress=codec, bucket_cap_mb=0.03)
    train(model, deep_loss, steps=2, optimizer=without)
    before = weights(model)
    for twice in (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    ):
        with pytest.raises(stretto.InvalidArgument, match="momentum would be applied twice"):
            train(model, deep_loss, steps=1, optimizer=twice)
        assert torch.equal(weights(model), before)
    train(model, deep_loss, steps=1, optimizer=lambda p: torch.optim.RMSprop(p, lr=0.001))
    # Other models, and this one with another codec, may have theirs.
    train(make(compress="topk:0.1", bucket_cap_mb=0.03), deep_loss, steps=1)
    model.replan(model.plan.with_codec("topk:0.1:momentum=0.5", ["0.*"]))
    with pytest.raises(stretto.InvalidArgument, match="momentum would be applied twice"):
        train(model, deep_loss, steps=1)
    other = make(bucket_cap_mb=0.03, plan=None)
    train(other, deep_loss, steps=1)
    other.replan(other.plan.with_codec(codec))
    with pytest.raises(stretto.InvalidArgument, match="momentum would be applied twice"):
        train(other, deep_loss, steps=1)
    other.replan(other.plan.with_codec("none"))
    train(other, deep_loss, steps=1)
