# SPDX-License-Identifier: Apache-2.0
"""What torch's own tests of DistributedDataParallel cover and test_parity.py does not; README.md has the table."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import stretto
import stretto.torch

from conftest import TIMEOUT_S
from training import compare, noise, train

UNUSED = {"find_unused_parameters": True}
STATIC = {"static_graph": True}


# ---- parameters that get no gradient ----


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return {"a": self.a(x), "both": (self.b(x), [self.a(x)])}


@pytest.mark.parametrize("used", [lambda out: out["a"], lambda out: out["both"][0], lambda out: out["both"][1][0]])
def test_outputs_that_the_loss_does_not_use(used):
    compare(Pair, lambda model, step: used(model(noise(step, 4, 6))).square().mean(), same_for_both=UNUSED)


class _NoGradient(torch.autograd.Function):
    """Its backward says that its input has none."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


class Undefined(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, cut):
        y = self.a(x)
        return self.b(x) + (_NoGradient.apply(y) if cut else y)


@pytest.mark.parametrize("cut", [lambda step, rank: True, lambda step, rank: (step + rank) % 2 == 0])
def test_undefined_gradients(cut, rank):
    def loss(model, step):
        return model(noise(step, 4, 6), cut(step, rank)).square().mean()

    compare(Undefined, loss, same_for_both=UNUSED)
    compare(Undefined, loss)  # without permission it is zeros, for the hook was called


class Nested(nn.Module):
    """Parts within parts, of which one is used by another rank in every step; `tie` lets two share a weight."""

    def __init__(self, tie=False):
        super().__init__()
        self.outer = nn.ModuleDict({"left": nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), "right": nn.Linear(6, 6)})
        if tie:
            self.outer["right"].weight = self.outer["left"][0].weight

    def forward(self, x, which):
        return self.outer[which](x)


@pytest.mark.parametrize("tie", [False, True])
def test_control_flow_that_differs_across_ranks(tie, rank):
    def loss(model, step):
        return model(noise(step, 4, 6), ["left", "right"][(step + rank) % 2]).square().mean()

    compare(lambda: Nested(tie), loss, steps=5, same_for_both=UNUSED)


def test_gradients_are_the_same_on_all_ranks_with_no_sync(rank):
    """Micro-batches of one step use different parts; afterwards all ranks have the same gradients."""
    model = stretto.torch.DDP(Nested(), timeout_s=TIMEOUT_S, **UNUSED)
    for step in range(3):
        model.zero_grad(set_to_none=step % 2 == 0)
        with model.no_sync():
            model(noise(step, 4, 6), "left").square().mean().backward()
        model(noise(step, 4, 6), "right").square().mean().backward()
        for parameter in model.parameters():
            both = [torch.empty_like(parameter) for _ in range(2)]
            dist.all_gather(both, parameter.grad)
            assert torch.equal(both[0], both[1]) and parameter.grad.abs().sum() > 0


# ---- the checkpointing matrix ----


class Checkpoints(nn.Module):
    """`first` may be used twice, share its weight with `second`, or be skipped in some steps."""

    def __init__(self, reentrant, times=1, tie=False, more=False):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        if more:
            self.more = nn.Linear(8, 8)
        if tie:
            self.second.weight = self.first.weight
        self.reentrant, self.times = reentrant, times

    def forward(self, x, skip=False):
        for _ in range(0 if skip else self.times):
            x = checkpoint(self.first, x, use_reentrant=self.reentrant)
        return checkpoint(self.second, x, use_reentrant=self.reentrant)


def checkpoint_loss(model, step):
    return model(noise(step, 4, 8).requires_grad_()).square().mean()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("tie", [False, True])
def test_checkpoints_that_share(reentrant, times, tie):
    compare(lambda: Checkpoints(reentrant, times, tie), checkpoint_loss, theirs=STATIC, exact=not tie)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_beside_an_unused_parameter(reentrant):
    compare(lambda: Checkpoints(reentrant, more=True), checkpoint_loss, theirs=STATIC, ours=UNUSED)


@pytest.mark.parametrize("tie", [False, True])
def test_checkpoints_that_come_and_go(tie):
    """A module that takes part in every other step; with reentrant checkpoints torch refuses it."""

    def loss(model, step):
        return model(noise(step, 4, 8).requires_grad_(), skip=step % 2 == 1).square().mean()

    compare(lambda: Checkpoints(False, 1, tie), loss, steps=5, same_for_both=UNUSED, exact=not tie)


def test_reentrant_checkpoints_that_come_and_go(rank):
    """Beyond torch: the mean of what two models without any wrapper get."""

    def loss(model, step, of_rank):
        generator = torch.Generator().manual_seed(100 * step + of_rank)
        return model(torch.randn(4, 8, generator=generator).requires_grad_(), skip=step % 2 == 1).square().mean()

    torch.manual_seed(7)
    alone = Checkpoints(True)
    torch.manual_seed(7)
    model = stretto.torch.DDP(Checkpoints(True), timeout_s=TIMEOUT_S, **UNUSED)
    for step in range(5):
        alone.zero_grad()
        model.zero_grad()
        ((loss(alone, step, 0) + loss(alone, step, 1)) / 2).backward()
        loss(model, step, rank).backward()
        for expected, found in zip(alone.parameters(), model.parameters()):
            if expected.grad is not None:
                torch.testing.assert_close(found.grad, expected.grad)


# ---- buffers: broadcast_buffers is forward_sync_buffers since torch 2.13 ----


class Counting(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.register_buffer("seen", torch.tensor([float(start)]))

    def forward(self, x):
        self.seen += x.sum().detach().abs()
        return self.body(x) * self.seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"broadcast_buffers": True},
        {"broadcast_buffers": False},
        {"forward_sync_buffers": True},
        {"forward_sync_buffers": False},
        {"broadcast_buffers": True, "forward_sync_buffers": False},
    ],
)
def test_buffers_as_torch_has_them(options, rank):
    if "forward_sync_buffers" in options and not hasattr(DistributedDataParallel, "broadcast_buffers"):
        pytest.skip("this torch has no forward_sync_buffers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = compare(
            lambda: Counting(3 * dist.get_rank()),
            lambda model, step: model(noise(step, 4, 4)).square().mean(),
            same_for_both=options,
        )
    assert model.broadcast_buffers == model.forward_sync_buffers == DistributedDataParallel(
        nn.Linear(1, 1), **options
    ).forward_sync_buffers


def test_both_words_for_buffers_are_noticed():
    with pytest.warns(UserWarning, match="broadcast_buffers=True is ignored"):
        stretto.torch.DDP(nn.Linear(2, 2), broadcast_buffers=True, forward_sync_buffers=False, timeout_s=TIMEOUT_S)


def test_lazy_modules_are_refused_by_name():
    with pytest.raises(stretto.InvalidArgument, match="'0.weight' of a lazy module"):
        stretto.torch.DDP(nn.Sequential(nn.LazyLinear(3)), timeout_s=TIMEOUT_S)


# ---- torch.compile ----


def blocks():
    return nn.Sequential(*[nn.Sequential(nn.Linear(192, 192), nn.Tanh()) for _ in range(6)])


def blocks_loss(model, step):
    return model(noise(step, 1024, 192)).square().mean()


def launched_during_backward(model):
    """Of the last step: how many buckets set out before the last gradient was ready."""
    records = model.timeline().records
    last = records[records["step"] == records["step"].max()]
    kinds = {name: number for number, name in enumerate(stretto.RECORD_KINDS)}
    ready = last[last["kind"] == kinds["ready"]]["begin_ns"]
    launched = last[last["kind"] == kinds["launched"]]["begin_ns"]
    return int((launched < ready.max()).sum()), len(launched)


def test_blocks_compiled_one_by_one_keep_the_overlap():
    module = blocks()
    for block in module:
        block.compile(backend="aot_eager")
    model = stretto.torch.DDP(module, timeout_s=TIMEOUT_S, bucket_cap_mb=0.143)  # one bucket per block
    train(model, blocks_loss, steps=6)
    early, all_of_them = launched_during_backward(model)
    assert all_of_them >= 6 and early >= all_of_them - 2


@pytest.mark.parametrize("outside", [False, True])
def test_one_compiled_graph_is_said_with_what_it_costs(outside):
    """Either `DDP(torch.compile(m))` or `torch.compile(DDP(m))`; once."""
    module = blocks()
    if not outside:
        module = torch.compile(module, backend="aot_eager")
    model = stretto.torch.DDP(module, timeout_s=TIMEOUT_S, bucket_cap_mb=0.143)
    compiled = torch.compile(model, backend="aot_eager") if outside else model
    with pytest.warns(UserWarning, match=r"[0-9.]+ ms of [0-9.]+ ms per step are exposed.*block.compile\(\)") as seen:
        train(model, lambda _, step: blocks_loss(compiled, step), steps=8)
    assert len([w for w in seen if "compiled graph" in str(w.message)]) == 1


# ---- a world that grew ----


def test_a_larger_world_wants_a_larger_rate():
    """The state of a job of one rank, loaded into one of two."""

    def saved(lr):
        module = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(module.parameters(), lr=lr)
        state = optimizer.state_dict()
        for group in state["param_groups"]:
            group.update(stretto_world_size=1, stretto_lr=lr)
        return state

    def go_on(change=lambda optimizer: None, state=saved(0.1)):
        model = stretto.torch.DDP(nn.Linear(2, 2), timeout_s=TIMEOUT_S)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer.load_state_dict(state)
        change(optimizer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(2):
                model(noise(step, 3, 2)).sum().backward()
                optimizer.step()
        return optimizer, [str(w.message) for w in caught if "ranks" in str(w.message)]

    optimizer, said = go_on()
    assert len(said) == 1 and "a job of 1 ranks and there are 2 now" in said[0] and "still 0.1" in said[0], said
    assert "tuned_for=1" in said[0]
    assert optimizer.state_dict()["param_groups"][0]["stretto_world_size"] == 2
    # As many ranks as before; a rate that was raised, by hand or by scale_lr() (before and after loading).
    assert go_on(state=optimizer.state_dict())[1] == []
    assert go_on(lambda o: o.param_groups[0].update(lr=0.2))[1] == []
    optimizer, said = go_on(lambda o: stretto.torch.scale_lr(o, 2))
    assert said == [] and optimizer.param_groups[0]["lr"] == pytest.approx(0.2)

    def scaled_first(o):
        stretto.torch.scale_lr(o, 2)
        o.load_state_dict(saved(0.1))

    assert go_on(scaled_first)[1] == []
