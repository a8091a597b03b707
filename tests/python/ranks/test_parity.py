# SPDX-License-Identifier: Apache-2.0
"""Stretto's DDP gives the losses, gradients, weights and buffers of torch's, step by step, bit by bit."""

import dataclasses
import os
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import stretto
import stretto.torch

from conftest import TIMEOUT_S
from training import assert_equal_steps, compare, noise, sgd, train

BACKENDS = ["shm", "process_group"]


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def mlp_loss(model, step):
    return model(noise(step, 8, 12)).square().mean()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_plain(backend, set_to_none):
    compare(mlp, mlp_loss, backend=backend, set_to_none=set_to_none, steps=6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_tensors_are_split(backend):
    model = compare(mlp, mlp_loss, backend=backend, ours={"bucket_cap_mb": 0.001})
    plan = model.plan
    assert max(b.bytes for b in plan.buckets) <= 1048
    split = [n for n in range(len(plan.buckets)) if "2.weight" in plan.tensor_names(n)]
    assert len(split) >= 4  # 4096 bytes


@pytest.mark.parametrize("streams", [0, 2])
def test_several_streams(streams):
    compare(mlp, mlp_loss, ours={"bucket_cap_mb": 0.001, "streams": streams})


def test_serial_schedule():
    compare(mlp, mlp_loss, ours={"schedule": "serial", "bucket_cap_mb": 0.001})


def test_every_step_verified():
    compare(mlp, mlp_loss, ours={"verify_every": 1, "bucket_cap_mb": 0.001})


def test_initial_weights_are_rank_0s(rank):
    torch.manual_seed(rank)
    model = stretto.torch.DDP(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)), timeout_s=TIMEOUT_S)
    torch.manual_seed(0)
    expected = nn.Linear(3, 5)
    assert torch.equal(model.module[0].weight, expected.weight)


# ---- which parameters take part ----


class Conditional(nn.Module):
    """Uses one of two branches, another one per rank and step; a third branch never."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 6)
        self.branches = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x, which):
        x = self.stem(x)
        return self.branches[which](x) if which is not None else x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_unused_parameters_per_rank(backend, set_to_none, rank):
    def loss(model, step):
        return model(noise(step, 4, 6), (step + rank) % 2).square().mean()

    model = compare(
        Conditional, loss, backend=backend, set_to_none=set_to_none, steps=5, same_for_both={"find_unused_parameters": True}
    )
    never = model.module.branches[2].weight.grad
    assert never is None or not set_to_none


def test_unused_on_all_ranks_in_some_steps():
    """A branch that nobody uses in a step keeps the gradient it had: None."""

    def loss(model, step):
        return model(noise(step, 4, 6), [0, None, 1][step % 3]).square().mean()

    compare(Conditional, loss, steps=6, same_for_both={"find_unused_parameters": True})


def test_unused_parameters_vary_by_micro_batch(rank):
    def one_backward(model, optimizer, loss_of, step):
        with model.no_sync():
            loss_of(model, 2 * step).backward()
        loss = loss_of(model, 2 * step + 1)
        loss.backward()
        return loss

    def loss(model, step):
        return model(noise(step, 4, 6), (step + rank) % 2).square().mean()

    compare(Conditional, loss, one_backward=one_backward, same_for_both={"find_unused_parameters": True})


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.body(self.body(self.embedding(tokens))))


def tokens(step, low=0, high=11):
    return (noise(step, 5).abs() * 1000).long() % (high - low) + low


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_parameters(backend):
    compare(Tied, lambda model, step: model(tokens(step)).square().mean(), backend=backend)


def test_frozen_parameters():
    def make():
        model = mlp()
        model[0].requires_grad_(False)
        return model

    compare(make, mlp_loss)


def test_ignored_parameters(rank):
    model = mlp()
    model._ddp_params_and_buffers_to_ignore = ["0.weight"]
    model = stretto.torch.DDP(model, timeout_s=TIMEOUT_S)
    mlp_loss(model, 0).backward()
    mine = model.module[0].weight.grad
    all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, mine)
    assert not torch.equal(all_ranks[0], all_ranks[1])  # stayed here
    assert "0.weight" not in [t.name for t in model.plan.tensors]


def test_empty_parameters():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)
            self.nothing = nn.Parameter(torch.empty(0, 3))

        def forward(self, x):
            return self.body(x).sum() + self.nothing.sum()

    model = stretto.torch.DDP(Empty(), timeout_s=TIMEOUT_S)
    for step in range(3):
        model(noise(step, 2, 4)).backward()
    assert model.module.nothing.grad.shape == (0, 3)


# ---- checkpointing ----


class Checkpointed(nn.Module):
    def __init__(self, reentrant, times=1):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.reentrant, self.times = reentrant, times

    def forward(self, x):
        for _ in range(self.times):
            x = checkpoint(self.first, x, use_reentrant=self.reentrant)
        return checkpoint(self.second, x, use_reentrant=self.reentrant)


def checkpoint_loss(model, step):
    return model(noise(step, 4, 8).requires_grad_()).square().mean()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(backend, reentrant):
    compare(lambda: Checkpointed(reentrant), checkpoint_loss, backend=backend)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_of_a_shared_module(reentrant):
    """With reentrant checkpoints its gradient comes in two parts; torch needs static_graph for it."""
    compare(lambda: Checkpointed(reentrant, times=2), checkpoint_loss, theirs={"static_graph": True}, steps=5)


# ---- types and layouts ----


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.f32 = nn.Linear(4, 4)
        self.f64 = nn.Linear(4, 4).double()
        self.bf16 = nn.Linear(4, 4).bfloat16()
        self.f16 = nn.Linear(4, 4).half()

    def forward(self, x):
        x = self.f64(self.f32(x).double())
        return self.f16(self.bf16(x.bfloat16()).half()).float()


def test_mixed_types():
    """16-bit gradients are added in single precision here, and rounded once."""
    model = compare(Mixed, lambda model, step: model(noise(step, 3, 4)).square().mean(), exact=False)
    assert {b.dtype for b in model.plan.buckets} == {"f32", "f64", "bf16", "f16"}


def test_mixed_types_through_a_process_group():
    compare(Mixed, lambda model, step: model(noise(step, 3, 4)).square().mean(), backend="process_group")


def test_complex_parameters():
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))

        def forward(self, x):
            return (x.to(torch.complex64) @ self.w).abs().sum()

    compare(Complex, lambda model, step: model(noise(step, 2, 3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_channels_last(backend):
    def make():
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last)

    def loss(model, step):
        return model(noise(step, 2, 3, 8, 8).to(memory_format=torch.channels_last)).square().mean()

    model = compare(make, loss, backend=backend)
    weight = model.module[2].weight
    assert weight.grad.stride() == weight.stride() != weight.contiguous().stride()


def test_sparse_gradients_become_dense_aloud():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 4, sparse=True)
            self.head = nn.Linear(4, 1)

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    def plain_sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    with pytest.warns(UserWarning, match="'embedding.weight' is sparse"):
        compare(Sparse, lambda model, step: model(tokens(step)).sum(), optimizer=plain_sgd, exact=False)


# ---- loops ----


def accumulate(model, optimizer, loss_of, step):
    for micro in range(2):
        with model.no_sync():
            loss_of(model, 10 * step + micro).backward()
    loss = loss_of(model, 10 * step + 2)
    loss.backward()
    return loss


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_accumulation(backend, set_to_none):
    compare(mlp, mlp_loss, backend=backend, set_to_none=set_to_none, one_backward=accumulate)


def test_no_sync_around_forward_alone():
    def one_backward(model, optimizer, loss_of, step):
        with model.no_sync():
            loss = loss_of(model, 2 * step)
        loss.backward()
        loss = loss_of(model, 2 * step + 1)
        loss.backward()
        return loss

    compare(mlp, mlp_loss, one_backward=one_backward)


def test_no_sync_around_backward_alone(rank):
    """torch decides in forward; here either will do."""
    model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    mlp_loss(model, 0).backward()
    model.zero_grad()
    loss = mlp_loss(model, 1)
    with model.no_sync():
        loss.backward()
    mine = model.module[0].weight.grad.clone()
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    assert not torch.equal(both[0], both[1])
    mlp_loss(model, 2).backward()  # nothing is left open


def test_two_backward_passes_per_step():
    """Averaging what is averaged already changes nothing."""

    def twice(model, optimizer, loss_of, step):
        loss_of(model, 2 * step).backward()
        loss = loss_of(model, 2 * step + 1)
        loss.backward()
        return loss

    compare(mlp, mlp_loss, one_backward=twice, exact=False)


def test_two_forward_passes_one_backward():
    def loss(model, step):
        return model(noise(step, 4, 12)).square().mean() + model(noise(step + 100, 4, 12)).mean()

    model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    for step in range(3):
        model.zero_grad()
        loss(model, step).backward()
    dist.barrier()
    assert model._reducer.steps == 3


def test_clipping():
    norms = []

    def clip(model):
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)))

    compare(mlp, mlp_loss, after_backward=clip)
    assert norms[:4] == norms[4:] and norms[0] > 0.1


def test_gradient_scaler():
    def make_loop():
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

        def one_backward(model, optimizer, loss_of, step):
            loss = loss_of(model, step)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.update()
            return loss

        return one_backward

    loops = {}

    def one_backward(model, optimizer, loss_of, step):
        return loops.setdefault(id(model), make_loop())(model, optimizer, loss_of, step)

    compare(mlp, mlp_loss, one_backward=one_backward)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_norm_buffers(backend):
    def make():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    compare(make, lambda model, step: model(noise(step, 8, 6)).square().mean(), backend=backend)


def test_buffers_stay_without_broadcast():
    def make():
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    compare(
        make,
        lambda model, step: model(noise(step, 8, 6)).square().mean(),
        same_for_both={"broadcast_buffers": False},
    )


def test_adam_and_a_schedule():
    compare(mlp, mlp_loss, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-2), steps=8)


def test_outputs_in_structures():
    @dataclasses.dataclass
    class Result:
        values: dict

    class Structured(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x):
            return Result({"a": [self.body(x)], "b": None})

    compare(Structured, lambda model, step: model(noise(step, 2, 4)).values["a"][0].square().mean())


def test_gradients_of_inputs_only():
    """torch.autograd.grad() reaches no parameter: no step, and the next one is whole."""
    model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    for step in range(3):
        x = noise(step, 4, 12).requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
        assert gradient.shape == x.shape
        mlp_loss(model, step).backward()
    assert model._reducer.steps == 3


def test_gradient_penalty():
    def loss(model, step):
        x = noise(step, 4, 12).requires_grad_()
        out = model(x).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        return out + gradient.square().sum()

    compare(
        lambda: nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1)), loss, ours={"find_unused_parameters": True},
        theirs={"find_unused_parameters": True}, exact=False,
    )


def test_evaluation_between_steps_needs_no_peer(rank):
    model = stretto.torch.DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), timeout_s=TIMEOUT_S)
    for step in range(2):
        model(noise(step, 8, 4)).sum().backward()
        if rank == 0:
            model.eval()
            with torch.no_grad():
                model(noise(step, 8, 4))
            model.train()
    model(noise(9, 8, 4)).sum().backward()


def test_state_dict_is_the_one_of_torch(rank):
    torch.manual_seed(3)
    theirs = torch.nn.parallel.DistributedDataParallel(mlp())
    ours = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    ours.load_state_dict(theirs.state_dict())
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for step in range(2):
        for model in (theirs, ours):
            model.zero_grad()
            mlp_loss(model, step).backward()
    for a, b in zip(theirs.parameters(), ours.parameters()):
        assert torch.equal(a.grad, b.grad)


def test_gradients_stay_where_they_are():
    model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    optimizer = sgd(model.parameters())
    mlp_loss(model, 0).backward()
    places = [p.grad.data_ptr() for p in model.parameters()]
    for step in range(1, 4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        mlp_loss(model, step).backward()
        assert [p.grad.data_ptr() for p in model.parameters()] == places
        optimizer.step()


def test_gradients_outlive_the_model():
    module = mlp()
    model = stretto.torch.DDP(module, timeout_s=TIMEOUT_S)
    mlp_loss(model, 0).backward()
    expected = module[0].weight.grad.clone()
    del model
    assert torch.equal(module[0].weight.grad, expected)


# ---- uneven inputs ----


def uneven(model, loss_of, batches, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with model.join(**options):
        for step in range(batches):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    return {n: p.detach().clone() for n, p in model.module.named_parameters()}


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("whole", [True, False])
def test_join(first, whole, rank):
    batches = first if rank == 0 else 4
    results = []
    for ours in (False, True):
        torch.manual_seed(5)
        model = (
            stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
            if ours
            else torch.nn.parallel.DistributedDataParallel(mlp())
        )
        results.append(uneven(model, mlp_loss, batches, divide_by_initial_world_size=whole))
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name])


def test_join_with_buffers(rank):
    def make():
        return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))

    results = []
    for ours in (False, True):
        torch.manual_seed(5)
        model = stretto.torch.DDP(make(), timeout_s=TIMEOUT_S) if ours else torch.nn.parallel.DistributedDataParallel(make())
        results.append(uneven(model, mlp_loss, 2 + 2 * rank))
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name])


def test_join_weighted_by_samples(rank):
    """Equals one process that trains on all samples at once."""
    sizes = [[3, 5, 2], [6, 1]]

    def batch(step, r):
        generator = torch.Generator().manual_seed(50 * step + r)
        return torch.randn(sizes[r][step], 12, generator=generator)

    torch.manual_seed(5)
    alone = mlp()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        alone(torch.cat([batch(step, r) for r in range(2) if step < len(sizes[r])])).square().mean().backward()
        optimizer.step()

    torch.manual_seed(5)
    model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with model.join(sample_weighted=True):
        for step in range(len(sizes[rank])):
            optimizer.zero_grad()
            model(batch(step, rank)).square().mean().backward()
            optimizer.step()
    for expected, found in zip(alone.parameters(), model.parameters()):
        torch.testing.assert_close(found, expected)


def test_join_can_stop_all_ranks(rank):
    model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
    with pytest.raises(RuntimeError, match="rank 0 has no more data"):
        with model.join(throw_on_early_termination=True):
            for step in range(2 + rank):
                mlp_loss(model, step).backward()


# ---- torch.compile ----


@pytest.mark.parametrize("inside", [True, False])
def test_compiled(inside):
    torch.manual_seed(7)
    reference = torch.nn.parallel.DistributedDataParallel(mlp())
    expected = train(reference, mlp_loss, steps=3)
    torch.manual_seed(7)
    if inside:
        model = stretto.torch.DDP(torch.compile(mlp(), backend="aot_eager"), timeout_s=TIMEOUT_S)
        found = train(model, mlp_loss, steps=3)
    else:
        model = stretto.torch.DDP(mlp(), timeout_s=TIMEOUT_S)
        compiled = torch.compile(model, backend="aot_eager")
        compiled_loss = lambda _, step: mlp_loss(compiled, step)  # noqa: E731
        found = train(model, compiled_loss, steps=3)
    for a, b in zip(expected, found):
        for name in a.weights:
            torch.testing.assert_close(a.weights[name], b.weights[name.replace("_orig_mod.", "")] if name in b.weights else b.weights["_orig_mod." + name])
