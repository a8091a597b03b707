# SPDX-License-Identifier: Apache-2.0
"""Plans, timelines, the hook for torch's DDP and the recorder, on two ranks."""

import json
import os
import pathlib
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stretto
import stretto.torch

from conftest import TIMEOUT_S
from training import assert_equal_steps, deep, deep_loss, noise, sgd, train

RECORD_KIND = {name: number for number, name in enumerate(stretto.RECORD_KINDS)}


def make(**options):
    torch.manual_seed(7)
    return stretto.torch.DDP(deep(6), timeout_s=TIMEOUT_S, **options)


@pytest.fixture
def shared_path(tmp_path):
    """A folder that all ranks see."""
    folder = [str(tmp_path)]
    dist.broadcast_object_list(folder, src=0)
    return pathlib.Path(folder[0])


# ---- plans ----


def test_the_plan_follows_backward():
    model = make()
    assert model.plan is None
    deep_loss(model, 0).backward()
    names = [t.name for t in model.plan.tensors]
    assert names[:2] == ["10.bias", "10.weight"] or names[:2] == ["10.weight", "10.bias"]
    assert names[-1].startswith("0.")


def test_plans_are_saved_loaded_and_replaced(shared_path, rank):
    model = make(bucket_cap_mb=0.02)
    train(model, deep_loss, steps=2)
    file = shared_path / "plan.json"
    if rank == 0:
        model.plan.save(file)
    dist.barrier()
    before = [p.grad.data_ptr() for p in model.parameters()]
    model.replan(stretto.Plan.uniform(model.plan.tensors, 4096))
    assert len(model.plan.buckets) > 20
    train(model, deep_loss, steps=1, set_to_none=False)
    assert [p.grad.data_ptr() for p in model.parameters()] == before
    model.replan(file)
    train(model, deep_loss, steps=1)
    again = make(plan=file)
    train(again, deep_loss, steps=2)
    assert again.plan.hash == model.plan.hash


def test_another_order_moves_gradients_and_changes_nothing():
    torch.manual_seed(7)
    expected = train(DistributedDataParallel(deep(6)), deep_loss, steps=5)
    model = make()
    found = train(model, deep_loss, steps=2)
    model.replan(stretto.Plan.uniform(list(reversed(model.plan.tensors)), 8192))
    assert_equal_steps(expected[:2], found)
    model.replan()  # and learns it again
    assert model.plan is None
    deep_loss(model, 2).backward()
    assert model.plan.tensors[0].name.startswith("10.")


def test_an_order_that_changes_is_noticed():
    """The first step runs backward in another order than all others: step 10 lays gradients out anew."""

    class Turning(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
            self.turned = True

        def forward(self, x):
            for part in reversed(self.parts) if self.turned else self.parts:
                x = torch.tanh(part(x))
            return x

    def run(model):
        losses = []
        optimizer = sgd(model.parameters())
        for step in range(14):
            model.module.turned = step == 0
            optimizer.zero_grad()
            loss = deep_loss(model, step)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.manual_seed(7)
    expected = run(DistributedDataParallel(Turning()))
    torch.manual_seed(7)
    model = stretto.torch.DDP(Turning(), timeout_s=TIMEOUT_S, bucket_cap_mb=0.02)
    assert run(model) == expected
    assert model.plan.tensors[0].name.startswith("parts.7.")


def test_a_plan_of_another_model_is_refused():
    other = stretto.Plan.single([stretto.TensorSpec("0.weight", [3, 3])])
    with pytest.raises(stretto.InvalidArgument, match="the plan is for another model"):
        make(plan=other)


def test_a_measured_step_is_planned():
    model = make()
    train(model, deep_loss, steps=4)
    profile = model.step_profile()
    assert profile.basis == "measured"
    assert {t.name for t in profile.tensors} == {n for n, _ in model.module.named_parameters()}
    text = [stretto.plan(profile, "2@1Gbit/s,50us").plan.to_json()]
    dist.broadcast_object_list(text, src=0)
    model.replan(stretto.Plan.from_json(text[0]))
    train(model, deep_loss, steps=2)


# ---- what happened ----


def test_communication_begins_before_backward_ends():
    """The point of it all, seen in the records: on an emulated network, whose transfers take long."""
    model = stretto.torch.DDP(deep(8, 256), timeout_s=TIMEOUT_S, bucket_cap_mb=0.25, emulate="2@2Gbit/s,50us")
    optimizer = sgd(model.parameters())
    for step in range(5):
        optimizer.zero_grad()
        model(noise(step, 256, 256)).square().mean().backward()
        optimizer.step()
    serial = stretto.torch.DDP(deep(8, 256), timeout_s=TIMEOUT_S, schedule="serial", emulate="2@2Gbit/s,50us")
    for step in range(3):
        serial(noise(step, 256, 256)).square().mean().backward()
    # Nothing is asserted before both ranks have done all they do together.
    records = model.timeline().records
    overlapped = []
    for step in sorted(set(records["step"])):
        of_step = records[records["step"] == step]
        backward = of_step[of_step["kind"] == RECORD_KIND["backward"]]
        exchanges = of_step[of_step["kind"] == RECORD_KIND["communication"]]
        assert len(backward) == 1 and len(exchanges) == len(model.plan.buckets)
        end = backward["end_ns"][0]
        launched = of_step[of_step["kind"] == RECORD_KIND["launched"]]["begin_ns"]
        assert (launched < end).sum() >= len(launched) - 1
        overlapped.append(exchanges["begin_ns"].min() < end)
    # In most steps: backward takes 10 ms, and the thread that communicates may once get no core for as long.
    assert 2 * sum(overlapped) > len(overlapped), overlapped
    records = serial.timeline().records
    last = records[records["step"] == records["step"].max()]
    ready = last[last["kind"] == RECORD_KIND["ready"]]["begin_ns"].max()
    assert last[last["kind"] == RECORD_KIND["communication"]]["begin_ns"].min() >= ready


def test_summary(rank):
    model = make()
    with pytest.raises(stretto.InvalidArgument, match="no step was recorded yet"):
        model.summary()
    train(model, deep_loss, steps=6)
    summary = model.summary(samples_per_step=32)
    assert summary.summary.steps == 5  # the first one only learned
    assert str(summary).startswith("exposed ")
    assert 0 < summary.summary.compute_s <= summary.summary.step_s
    assert set(model.metrics(32)) >= {"exposed_ms", "step_ms", "samples_per_s"}
    merged = model.timeline(all_ranks=True)
    assert sorted(set(merged.records["rank"])) == ([0, 1] if rank == 0 else [])


def test_recording_can_be_off():
    model = make(record_steps=0)
    train(model, deep_loss, steps=3)
    assert len(model.timeline()) == 0


def test_repr_says_what_it_is():
    text = repr(make())
    assert text.startswith("stretto.torch.DDP(\n") and "rank " in text and "shm" in text


def test_a_closed_model_keeps_its_gradients_and_trains_no_more():
    model = make()
    train(model, deep_loss, steps=3)
    before = [p.grad.clone() for p in model.parameters()]
    dist.barrier()
    model.close()
    model.close()
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters()))
    with pytest.raises(stretto.BackendError, match="this model was closed"):
        deep_loss(model, 4)


def test_it_is_not_copied_or_pickled():
    import copy
    import pickle

    with pytest.raises(TypeError, match="connections"):
        copy.deepcopy(make())
    with pytest.raises(TypeError, match="connections"):
        pickle.dumps(make())


# ---- options ----


@pytest.mark.parametrize(
    "options, words",
    [
        ({"bucket_cap_mb": -5}, "more than 0"),
        ({"backend": "carrier pigeon"}, "auto, shm, mpi, process_group"),
        ({"bucket_cap_mb": 1, "plan": "plan.json"}, "a cap or from a plan"),
        ({"schedule": "later"}, "serial, overlap"),
        ({"backend": "process_group", "emulate": "2@1Gbit/s,50us"}, "cannot emulate"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(stretto.InvalidArgument, match=words):
        deep_loss(stretto.torch.DDP(deep(6), timeout_s=TIMEOUT_S, **options), 0).backward()


def test_nothing_to_train():
    with pytest.raises(stretto.InvalidArgument, match="no parameter that needs a gradient"):
        stretto.torch.DDP(nn.ReLU())


# ---- the hook for torch's own ----


def test_hook_gives_the_same_and_records():
    torch.manual_seed(7)
    expected = train(DistributedDataParallel(deep(6), bucket_cap_mb=0.03), deep_loss, steps=6)
    torch.manual_seed(7)
    model = DistributedDataParallel(deep(6), bucket_cap_mb=0.03)
    state = stretto.torch.HookState(model)
    model.register_comm_hook(state, stretto.torch.hook)
    found = train(model, deep_loss, steps=6)
    assert_equal_steps(expected, found)
    summary = state.summary()
    assert summary.summary.steps == 6
    assert summary.summary.buckets
    assert all("." in summary.bucket_name(b.bucket) for b in summary.summary.buckets)
    records = state.timeline().records
    for step in range(6):
        of_step = records[records["step"] == step]
        ends = of_step[of_step["kind"] == RECORD_KIND["communication"]]["end_ns"]
        assert of_step[of_step["kind"] == RECORD_KIND["step"]]["end_ns"][0] >= ends.max()


def test_hook_with_accumulation():
    model = DistributedDataParallel(deep(6))
    state = stretto.torch.HookState(model)
    model.register_comm_hook(state, stretto.torch.hook)
    for step in range(3):
        with model.no_sync():
            deep_loss(model, 2 * step).backward()
        deep_loss(model, 2 * step + 1).backward()
    records = state.timeline().records
    last = records[records["step"] == 2]
    assert (last["kind"] == RECORD_KIND["forward"]).sum() == 2


# ---- any job ----


def test_record(shared_path, rank):
    model = DistributedDataParallel(deep(4, 256), bucket_cap_mb=0.2)
    with stretto.torch.record(shared_path / "run.json.gz", steps=3, skip=2) as recording:
        train(model, lambda model, step: model(noise(step, 64, 256)).square().mean(), steps=8)
    assert recording.steps == 8
    assert [os.path.basename(f) for f in recording.files] == [f"run.rank{rank}.json.gz"]
    assert recording.analyze().summary.steps >= 2
    dist.barrier()
    analysis = stretto.analyze(shared_path)
    assert analysis.summary.ranks == 2
    assert analysis.summary.communication_s > 0


def test_record_of_stretto_itself(shared_path, rank):
    model = make()
    with stretto.torch.record(shared_path / "own.json", steps=2, skip=1, every=4) as recording:
        train(model, deep_loss, steps=10)
    assert len(recording.files) == 2
    dist.barrier()


def test_record_says_when_there_was_nothing(tmp_path):
    with pytest.warns(UserWarning, match="wrote nothing: 0 optimizer steps"):
        with stretto.torch.record(tmp_path / "run.json"):
            pass


# ---- learning rates and trackers ----


def test_scale_lr():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = stretto.torch.scale_lr(optimizer, world_size=4, warmup_steps=3)
    rates = []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    with pytest.warns(UserWarning, match="grows 16-fold at once"):
        stretto.torch.scale_lr(optimizer, world_size=16)


def test_trackers():
    numbers = {"exposed_ms": 1.5, "step_ms": 10.0}
    calls = []

    class Tracker:
        def add_scalar(self, name, value, step):
            calls.append((name, value, step))

        def log(self, values, step):
            calls.extend((name, value, step) for name, value in values.items())

        log_metrics = log

    for log in (stretto.torch.log_tensorboard, stretto.torch.log_wandb, stretto.torch.log_mlflow):
        calls.clear()
        log(Tracker(), numbers, 7)
        assert calls == [("stretto/exposed_ms", 1.5, 7), ("stretto/step_ms", 10.0, 7)]


# ---- what stretto tune sets and reads ----


def test_the_environment_comes_before_the_arguments(shared_path, rank, monkeypatch):
    model = make(bucket_cap_mb=0.02)
    train(model, deep_loss, steps=2)
    file = shared_path / "tuned.json"
    if rank == 0:
        stretto.Plan.single(list(model.plan.tensors)).save(file)
    dist.barrier()
    monkeypatch.setenv("STRETTO_PLAN", str(file))
    monkeypatch.setenv("STRETTO_SCHEDULE", "serial")
    tuned = make(bucket_cap_mb=0.02)
    train(tuned, deep_loss, steps=2)
    assert len(tuned.plan.buckets) == 1 < len(model.plan.buckets)
    assert tuned._reducer.schedule == "serial"
    monkeypatch.setenv("STRETTO_STREAMS", "many")
    with pytest.raises(stretto.InvalidArgument, match="STRETTO_STREAMS"):
        make()


def test_a_trial_leaves_its_results(shared_path, rank, monkeypatch):
    monkeypatch.setattr(stretto.torch._trial, "_taken", False)
    monkeypatch.setenv("STRETTO_TRIAL", str(shared_path))
    monkeypatch.setenv("STRETTO_TRIAL_STEPS", "3")
    monkeypatch.setenv("STRETTO_TRIAL_WARMUP", "1")
    watched, other = make(record_steps=0), make()
    train(watched, deep_loss, steps=4)
    dist.barrier()
    assert not (shared_path / "done").exists()  # one to learn, one to warm up, two
    train(other, deep_loss, steps=8)
    train(watched, deep_loss, steps=1)
    dist.barrier()
    assert (shared_path / "done").exists()
    assert json.loads((shared_path / "summary.json").read_text())["steps"] == 3
    assert stretto.Plan.load(shared_path / "plan.json").hash == watched.plan.hash
    assert stretto.Timeline.load(shared_path / "timeline.json").world_size == 2
