# SPDX-License-Identifier: Apache-2.0
"""The schedule priority: weights of the serial schedule, bit by bit, while updates run under the next forward pass."""

import copy
import pickle
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD, Adam, AdamW

import stretto
import stretto.torch
from stretto import _core
from stretto.torch._backend import connect
from stretto.torch._memory import over_memory

from conftest import TIMEOUT_S
from training import noise

RECORD_KIND = {name: number for number, name in enumerate(stretto.RECORD_KINDS)}
BACKENDS = ["shm", "process_group"]


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4))


def ddp(schedule, make=mlp, **options):
    torch.manual_seed(7)
    options.setdefault("bucket_cap_mb", 0.002)
    return stretto.torch.DDP(make(), schedule=schedule, timeout_s=TIMEOUT_S, **options)


def overlapped(model, kind=SGD, **options):
    options.setdefault("lr", 0.05)
    return stretto.torch.overlap(kind(model.parameters(), **options), model)


def loss_of(model, step):
    return model(noise(step, 8, 12)).square().mean()


def travelling(model):
    return len(model._reducer.travel.ways)


def weights(model):
    return {n: p.detach().clone() for n, p in model.module.named_parameters()}


def assert_same(a, b, what=""):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), f"{what} {name} differs by {(a[name] - b[name]).abs().max()}"


def train(schedule, optimizer_of, *, steps=6, make=mlp, loss=loss_of, micro=1, clip=None, rate=True, none=True, after=None, waits=False, **options):
    model = ddp(schedule, make, **options)
    optimizer = optimizer_of(model.parameters())
    if schedule == "priority":
        optimizer = stretto.torch.overlap(optimizer, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8) if rate else None
    found = []
    for step in range(steps):
        optimizer.zero_grad(set_to_none=none)
        for m in range(micro - 1):
            with model.no_sync():
                loss(model, 100 + 10 * step + m).backward()
        out = loss(model, step)
        out.backward()
        found.append(float(out.detach()))
        if clip is not None:
            found.append(float(clip(model)))
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if schedule == "priority":
            assert (travelling(model) > 0) == (step > 0 and not waits)
        if after is not None:
            found.append(after(model, optimizer, step))
    return found, weights(model), optimizer.state_dict()["state"]


def compare(*arguments, **options):
    losses, expected, state = train("serial", *arguments, **options)
    found_losses, found, found_state = train("priority", *arguments, **options)
    assert losses == found_losses
    assert_same(expected, found)
    for key in state:
        for name, value in state[key].items():
            assert value is None or torch.equal(torch.as_tensor(value), torch.as_tensor(found_state[key][name])), (key, name)


# ---- what lies below: the Session of Python ----


def test_the_sessions_wait_drain_and_norm(rank):
    specs = [stretto.TensorSpec(name, [700]) for name in "dcba"]
    results, norms = [], []
    for schedule in ("serial", "priority"):
        communicator, _ = connect(None, "shm", torch.device("cpu"), TIMEOUT_S, None)
        session = _core.Session(communicator, stretto.Plan.uniform(specs, 1000), schedule=schedule, reduce_first=True)
        gradients = [over_memory(session.gradient(i)[0], 700, torch.float32, session) for i in range(4)]
        with pytest.raises(stretto.InvalidArgument, match="no step finished"):
            session.gradient_norm()
        for step in range(3):
            for i, gradient in enumerate(gradients):
                gradient.copy_(noise(10 * step + i, 700))
                session.ready(i)
            session.finish()
            norms.append(session.gradient_norm())
            if step < 2:
                for i in reversed(range(4)):
                    session.wait(i)
            session.drain()
            assert session.gradient_norm() == norms[-1]
            results.append(torch.cat(gradients))
        with pytest.raises(IndexError):
            session.wait(4)
    assert norms[:3] == norms[3:]
    assert all(torch.equal(a, b) for a, b in zip(results[:3], results[3:]))
    assert norms[-1] == pytest.approx(float(results[-1].double().norm()))


# ---- the same weights ----

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.05),
    "momentum": lambda p: SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: Adam(p, lr=0.01),
    "adamw": lambda p: AdamW(p, lr=0.01, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_the_serial_schedule(name):
    compare(OPTIMIZERS[name])
    compare(OPTIMIZERS[name], micro=3, none=False)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_by_the_global_norm(name, backend):
    compare(OPTIMIZERS[name], clip=lambda model: stretto.torch.clip_grad_norm_(model, 0.05), backend=backend)


def test_torchs_own_clipping_waits_and_is_right():
    compare(OPTIMIZERS["adam"], clip=lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05), waits=True)


def test_the_norm_is_torchs(rank):
    model = ddp("priority")
    for step in range(2):
        loss_of(model, step).backward()
        norm = stretto.torch.clip_grad_norm_(model, 1e9)
        if rank == 0:  # one rank may look at gradients, or not
            torch.testing.assert_close(norm, torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
        torch.testing.assert_close(stretto.torch.clip_grad_norm_(model, norm / 2), norm)
        assert float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])) == pytest.approx(float(norm) / 2, rel=1e-4)
        with pytest.raises(stretto.InvalidArgument, match="clipped already"):
            stretto.torch.clip_grad_norm_(model, 1.0)
        model.zero_grad()


def test_groups_and_optimizers_of_their_own_settings():
    def split(parameters):
        parameters = list(parameters)
        return AdamW([{"params": parameters[:3], "lr": torch.tensor(0.02)}, {"params": parameters[3:], "betas": (0.8, 0.9)}], lr=0.01)

    compare(split, rate=False)
    model, serial = ddp("priority"), ddp("serial")
    for each in (model, serial):
        parameters = list(each.parameters())
        both = [SGD(parameters[:2], lr=0.1), Adam(parameters[2:], lr=0.02)]
        if each is model:
            both = [stretto.torch.overlap(o, each) for o in both]
        for step in range(4):
            loss_of(each, step).backward()
            for o in both:
                o.step()
                o.zero_grad()
    assert_same(weights(serial), weights(model))


class Odd(nn.Module):
    """Parameters that no module's forward() asks for: tied, borrowed, in a list, in a recurrent layer, in another order."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.listed = nn.ParameterList(nn.Parameter(torch.randn(8, 8) * 0.1) for _ in range(2))
        self.borrowed = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.bare = nn.Parameter(torch.ones(8))
        self.turn = False

    def forward(self, x):
        x = self.embedding((x.abs() * 100).long() % 12)
        parts = [lambda x: self.recurrent(x)[0], lambda x: self.attention(x, x, x)[0], lambda x: x @ self.listed[0] @ self.listed[1]]
        for part in reversed(parts) if self.turn else parts:
            x = part(x)
        self.turn = not self.turn
        x = nn.functional.linear(x, self.borrowed.weight, self.borrowed.bias) * self.bare
        return x @ self.embedding.weight.T


def test_parameters_used_out_of_order_tied_or_behind_their_modules_back():
    compare(OPTIMIZERS["adam"], make=Odd)


def test_held_references_and_averages_see_updated_weights():
    def average(schedule):
        model = ddp(schedule)
        optimizer = SGD(model.parameters(), lr=0.1)
        if schedule == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
        held = list(model.parameters())  # as averages of weights keep them
        mean = [p.detach().clone() for p in held]
        ema = torch.optim.swa_utils.AveragedModel(model.module)
        for step in range(4):
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 2:
                for m, p in zip(mean, held):
                    m.lerp_(p.detach(), 0.1)
            else:
                ema.update_parameters(model.module)
        return dict(enumerate(mean + list(ema.parameters())))

    assert_same(average("serial"), average("priority"))


def test_checkpoints_midway_and_evaluation_see_one_step(rank):
    def midway(model, optimizer, step):
        if step == 2:
            saved = model.module.state_dict()
            assert travelling_or_none(model) == 0
            return {n: t.tolist() for n, t in saved.items()}, str(copy.deepcopy(optimizer.state_dict()))
        if step == 3 and rank == 1:  # on one rank alone
            model.eval()
            with torch.inference_mode():
                found = model(noise(9, 3, 12)).tolist()
            model.train()
            return found
        if step == 4:
            copied = copy.deepcopy(model.module)
            pickled = pickle.loads(pickle.dumps(model.module))
            assert_same({n: p.detach() for n, p in pickled.named_parameters()}, weights(model))
            assert all(type(p) is nn.Parameter for p in copied.parameters())
            return copied[0].weight.tolist(), [p.grad.tolist() for p in model.parameters()]
        return None

    serial = train("serial", OPTIMIZERS["adamw"], after=midway)
    found = train("priority", OPTIMIZERS["adamw"], after=midway)
    assert serial[0] == found[0]
    assert_same(serial[1], found[1])


def travelling_or_none(model):
    return travelling(model) if model._reducer.travel else 0


def test_a_checkpoint_is_taken_up():
    """The whole state saved mid-way on one schedule goes on, bit by bit, on the other."""

    def run(first, second):
        model = ddp(first)
        optimizer = AdamW(model.parameters(), lr=0.01)
        if first == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
        model = ddp(second)
        optimizer = AdamW(model.parameters(), lr=0.5)
        if second == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
            loss_of(model, 50).backward()
            optimizer.step()
            loss_of(model, 51).backward()
            optimizer.step()  # waits while the checkpoint is loaded
            assert travelling(model)
            optimizer.zero_grad()
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        for step in range(3, 6):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        return weights(model)

    expected = run("serial", "serial")
    assert_same(expected, run("serial", "priority"))
    assert_same(expected, run("priority", "serial"))


def test_closures_scalers_and_steps_without_gradients():
    def run(schedule):
        model = ddp(schedule)
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
        if schedule == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        found = []
        for step in range(8):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            if step < 4:

                def closure():
                    out = loss_of(model, step)
                    out.backward()
                    return out

                found.append(optimizer.step(closure).item())
                if step == 2:
                    optimizer.step()  # the same gradients once more
            else:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    out = loss_of(model, step)
                if step == 6:
                    out = out * float("inf")
                scaler.scale(out).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
                found.append(scaler.get_scale())
        return found, weights(model)

    serial, found = run("serial"), run("priority")
    assert serial[0] == found[0]
    assert_same(serial[1], found[1])


def test_two_backwards_in_one_step():
    def twice(model, step):
        model(noise(step, 3, 12)).square().mean().backward()
        return loss_of(model, step + 50)

    compare(OPTIMIZERS["momentum"], loss=twice)


def test_gradients_that_nobody_zeroes_add_up():
    def run(schedule):
        model = ddp(schedule)
        optimizer = Adam(model.parameters(), lr=0.01, foreach=True)
        if schedule == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
        for step in range(5):
            loss_of(model, step).backward()
            optimizer.step()
            if step == 1:
                for p in model.parameters():
                    p.grad = None
        return {**weights(model), **{f"{n}.grad": p.grad for n, p in model.module.named_parameters()}}

    assert_same(run("serial"), run("priority"))


def test_fused_and_any_optimizer_of_ones_own():
    class Mine(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        state = self.state[p]
                        state["mean"] = state.get("mean", 0) * 0.9 + p.grad.square().mean()
                        p.sub_(p.grad, alpha=group["lr"] / (1 + float(state["mean"])))

    compare(lambda p: Mine(p, lr=0.1))
    compare(lambda p: AdamW(p, lr=0.01, fused=True))


class Halving(torch.optim.Optimizer):
    """Makes new tensors in its state, changes them in place, and multiplies matrices."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            old = self.state[p].get("mean", torch.zeros_like(p)).mul_(0.5)
            self.state[p]["mean"] = old + (p.grad.reshape(-1, 1) @ torch.full((1, 1), 0.01)).reshape(p.shape)
            p.sub_(self.state[p]["mean"])


def test_updates_are_the_same_in_whatever_mode_they_are_asked_for(rank):
    def evaluate(model, optimizer, step):
        model.eval()
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            model(noise(9, 3, 12))
        model.train()

    options = {"rate": False, "after": evaluate}
    _, expected, _ = train("serial", Halving, **options)
    _, found, _ = train("priority", Halving, **options)
    assert_same(expected, found)


class Foreign(nn.Linear):
    """Reads its weight as code that is not Python's does: where it lies, and nobody is asked."""

    def __init__(self):
        super().__init__(12, 12, bias=False)
        memory = self.weight.detach()

        class Multiply(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x)
                return x @ memory.T

            @staticmethod
            def backward(ctx, gradient):
                return gradient @ memory, gradient.T @ ctx.saved_tensors[0]

        self.function = Multiply

    def forward(self, x):
        return self.function.apply(x, self.weight)


def test_modules_in_foreign_code_wait_before_they_run():
    compare(OPTIMIZERS["momentum"], make=lambda: nn.Sequential(Foreign(), nn.Tanh(), Foreign()))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 12)
        self.branches = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))

    def forward(self, x, which):
        x = self.stem(x)
        return x if which is None else self.branches[which](x)


def test_modules_that_forward_does_not_visit(rank):
    """They are waited for when forward ends."""

    def run(schedule):
        model = ddp(schedule, Branches, find_unused_parameters=True)
        optimizer = AdamW(model.parameters(), lr=0.01)
        if schedule == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
        for step in range(6):
            out = model(noise(step, 4, 12), [0, None, (rank + step) % 2][step % 3]).square().mean()
            assert not model._reducer.travel or not travelling(model)
            optimizer.zero_grad()
            out.backward()
            optimizer.step()
        return weights(model)

    assert_same(run("serial"), run("priority"))


def test_plans_and_orders_change_between_steps():
    model, serial = ddp("priority"), ddp("serial")
    for each in (model, serial):
        optimizer = AdamW(each.parameters(), lr=0.01)
        if each is model:
            optimizer = stretto.torch.overlap(optimizer, each)
        for step in range(12):  # the order is looked at again in steps 1 and 10
            loss_of(each, step).backward()
            if step < 3:
                stretto.torch.clip_grad_norm_(each, 0.05)
            optimizer.step()
            optimizer.zero_grad()
            if step in (1, 8):
                each.replan()  # learned anew, while it was to be looked at
            if step == 4:
                each.replan(stretto.Plan.single(list(each.plan.tensors)))
            if step == 6:
                each.replan(stretto.Plan.uniform(list(reversed(each.plan.tensors)), 2000))
    assert_same(weights(serial), weights(model))


def test_with_a_codec():
    def run(schedule):
        model = ddp(schedule, compress="int8", bucket_cap_mb=0.004)
        optimizer = AdamW(model.parameters(), lr=0.01)
        if schedule == "priority":
            optimizer = stretto.torch.overlap(optimizer, model)
        states = []
        for step in range(5):
            loss_of(model, step).backward()
            stretto.torch.clip_grad_norm_(model, 0.05)
            if step == 3:
                model.undo_compression()  # this step is left out
            else:
                optimizer.step()
            states.append(model.compression_state())
            optimizer.zero_grad()
        return states, weights(model)

    serial, found = run("serial"), run("priority")
    assert serial[0] == found[0] and any(any(state) for state in found[0])
    assert_same(serial[1], found[1])


def test_without_overlap_an_optimizer_waits_and_is_right():
    """What `stretto tune` does to a script: the schedule alone."""

    def run(schedule):
        model = ddp(schedule)
        optimizer = AdamW(model.parameters(), lr=0.01)
        for step in range(4):
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        return weights(model)

    assert_same(run("serial"), run("priority"))


# ---- that it hides anything ----


def test_communication_goes_on_under_the_next_forward():
    """Seen in the records: exchanges of one step meet the forward pass of the next, and its updates come in between."""

    def deep():
        return nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.Tanh())])

    model = ddp("priority", deep, bucket_cap_mb=0.25, emulate="2@100Mbit/s,50us")
    optimizer = overlapped(model, AdamW, lr=1e-3)
    seen = []
    for step in range(5):
        optimizer.zero_grad()
        loss = model(noise(step, 256, 256)).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(travelling(model))
    model.drain()
    # Nothing is asserted before both ranks have done all they do together.
    assert seen == [0, 16, 16, 16, 16]
    records = model.timeline().records
    under_forward = []
    for step in (1, 2, 3):
        mine, after = records[records["step"] == step], records[records["step"] == step + 1]
        exchanges = mine[mine["kind"] == RECORD_KIND["communication"]]
        assert len(exchanges) == 2 * len(model.plan.buckets)  # a reduce_scatter and an all_gather each
        forward = after[after["kind"] == RECORD_KIND["forward"]]
        updates = after[(after["kind"] == RECORD_KIND["optimizer"]) & (after["begin_ns"] > forward["begin_ns"].min())]
        assert len(updates) >= 8  # one per layer
        meets = [((exchanges["begin_ns"] < end) & (exchanges["end_ns"] > begin)).any() for begin, end in zip(forward["begin_ns"], forward["end_ns"])]
        under_forward.append(any(meets))
    # In most steps: an exchange takes 200 ms, and a rank may once get no core for as long.
    assert sum(under_forward) >= 2, under_forward


# ---- what does not go ----


def test_what_does_not_go_is_refused_by_name():
    model = ddp("priority")
    with pytest.raises(stretto.Unavailable, match=r"overlap\(LBFGS\)"):
        stretto.torch.overlap(torch.optim.LBFGS(model.parameters()), model)
    with pytest.raises(stretto.Unavailable, match="differentiable"):
        overlapped(model, SGD, differentiable=True)
    with pytest.raises(stretto.InvalidArgument, match="stretto.torch.DDP"):
        stretto.torch.overlap(SGD(model.parameters(), lr=1), model.module)
    with pytest.raises(stretto.InvalidArgument, match="found str, expected a torch.optim.Optimizer"):
        stretto.torch.overlap("adam", model)
    with pytest.raises(stretto.InvalidArgument, match="schedule 'overlap'"):
        overlapped(ddp("overlap"))
    optimizer = overlapped(model)
    with pytest.raises(stretto.InvalidArgument, match="overlaps already"):
        stretto.torch.overlap(optimizer, model)
    with pytest.raises(TypeError, match="copy its state_dict"):
        copy.deepcopy(optimizer)
    with pytest.raises(stretto.Unavailable, match="join"):
        with model.join():
            pass
    with pytest.raises(stretto.InvalidArgument, match="max_norm"):
        stretto.torch.clip_grad_norm_(model, 0.0)
    with pytest.raises(stretto.InvalidArgument, match="no gradients yet"):
        stretto.torch.clip_grad_norm_(model, 1.0)
    wrapped = SGD(model.parameters(), lr=1)
    wrapped.step = lambda: None
    with pytest.raises(stretto.Unavailable, match="another wrapper"):
        stretto.torch.overlap(wrapped, model)
    with pytest.raises(stretto.Unavailable, match="module '1' "):
        ddp("priority", lambda: nn.Sequential(nn.Linear(2, 2), torch.compile(nn.Linear(2, 2))))

    class Special(nn.Parameter):
        pass

    strange = nn.Linear(2, 2)
    strange.weight = Special(torch.zeros(2, 2))
    with pytest.raises(stretto.Unavailable, match="'weight', a Special"):
        ddp("priority", lambda: strange)


class Counting(SGD):
    """Keeps what it learns where the next part would see it."""

    def step(self, closure=None):
        super().step()
        self.param_groups[0]["lr"] *= 0.5


class Noting(SGD):
    steps = 0

    def step(self, closure=None):
        super().step()
        self.steps += 1


class Outer(torch.optim.Optimizer):
    """Around another one, that steps on all parameters whatever this one is told."""

    def __init__(self, params, lr):
        self.inner = SGD(params, lr=lr)
        super().__init__(self.inner.param_groups[0]["params"], {"lr": lr})

    def step(self, closure=None):
        self.inner.step()


@pytest.mark.parametrize(
    "kind, words",
    [
        (Counting, r"overlap\(Counting\).*param_groups\[0\]\['lr'\]"),
        (Noting, "its step.. has changed steps"),
        (Outer, "changed parameters that it was not given"),
    ],
)
def test_an_optimizer_that_does_more_than_its_parameters_is_refused(kind, words):
    model = ddp("priority")
    optimizer = overlapped(model, kind)
    loss_of(model, 0).backward()
    with pytest.raises(stretto.Unavailable, match=words):
        optimizer.step()


def test_schedulers_made_before_or_after_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for before in (True, False):
            model = ddp("priority")
            optimizer = SGD(model.parameters(), lr=1.0)
            first = torch.optim.lr_scheduler.StepLR(optimizer, 1) if before else None
            optimizer = stretto.torch.overlap(optimizer, model)
            scheduler = first or torch.optim.lr_scheduler.StepLR(optimizer, 1)
            for step in range(3):
                loss_of(model, step).backward()
                optimizer.step()
                scheduler.step()
            assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)


def test_a_closed_model_has_the_last_update():
    model, serial = ddp("priority"), ddp("serial")
    for each in (model, serial):
        optimizer = SGD(each.parameters(), lr=0.1)
        if each is model:
            optimizer = stretto.torch.overlap(optimizer, each)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(each, step).backward()
            optimizer.step()
    dist.barrier()
    model.close()
    assert_same(weights(serial), {n: p.detach() for n, p in model.module.named_parameters()})
