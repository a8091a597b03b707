# SPDX-License-Identifier: Apache-2.0
"""The package without torch: nouns, verbs, errors, the program."""

import json
import pathlib
import pickle
import subprocess
import sys

import pytest

import stretto

TRACES = pathlib.Path(__file__).parents[2] / "examples" / "traces"
FILES = sorted(str(path) for path in TRACES.glob("*.json.gz"))
MACHINE = "8@5Gbit/s,50us"


@pytest.fixture(scope="module")
def analysis():
    return stretto.analyze(FILES)


def program(*arguments):
    done = subprocess.run([sys.executable, "-m", "stretto", *arguments], capture_output=True, text=True, timeout=60)
    return done


def test_analyze_says_what_the_program_says(analysis):
    document = json.loads(program("analyze", *FILES, "--json").stdout)
    assert analysis.to_dict()["summary"] == document["summary"]
    assert analysis.summary.exposed_s == document["summary"]["exposed_s"]
    assert [d.id for d in analysis.diagnoses] == [d["id"] for d in document["diagnoses"]]
    assert str(analysis).startswith(analysis.verdict)


def test_analyze_takes_a_directory_a_path_and_a_timeline(analysis):
    assert stretto.analyze(TRACES).summary.exposed_s == analysis.summary.exposed_s
    assert stretto.analyze(analysis.timeline).summary.step_s == analysis.summary.step_s
    one = stretto.analyze(pathlib.Path(FILES[0]))
    assert one.summary.ranks == 1


def test_plan_says_what_the_program_says():
    result = stretto.plan("resnet50", MACHINE)
    document = json.loads(program("plan", "resnet50", "--machine", MACHINE, "--json").stdout)
    for key in ("predicted_step_s", "optimum_s", "bound_s", "bound_gap_ratio"):
        assert getattr(result, key) == document[key]
    assert len(result.plan.buckets) == len(document["buckets"])
    assert result.bound_s <= result.optimum_s <= result.predicted_step_s
    assert "DistributedDataParallel" in result.settings("ddp")
    assert "reduce_bucket_size" in result.settings("deepspeed")


def test_plan_of_a_trace_needs_no_machine(analysis):
    result = stretto.plan(analysis)
    assert result.predicted_step_s < analysis.summary.step_s


def test_simulate_says_what_the_program_says():
    result = stretto.simulate("resnet50", MACHINE)
    document = json.loads(program("simulate", "resnet50", "--machine", MACHINE, "--json").stdout)
    assert result.step_s == document["step_s"]
    assert result.to_dict()["summary"] == document["summary"]
    plan = stretto.plan("resnet50", MACHINE)
    assert stretto.simulate("resnet50", MACHINE, plan).step_s == result.step_s
    single = stretto.Plan.single(plan.plan.tensors)
    assert stretto.simulate("resnet50", MACHINE, single).step_s > result.step_s


def test_records_are_a_view(analysis):
    numpy = pytest.importorskip("numpy", reason="records are NumPy arrays")
    timeline = analysis.timeline
    records = timeline.records
    assert records.dtype.itemsize == 64 and len(records) == len(timeline)
    steps = records[records["kind"] == stretto.RECORD_KINDS.index("step")]
    assert numpy.median(steps["end_ns"] - steps["begin_ns"]) / 1e9 == pytest.approx(analysis.summary.step_s, rel=0.2)
    assert records.base is not None
    del timeline
    assert records["begin_ns"].max() > 0  # keeps what it looks into


def test_nouns_survive_json_files_and_pickle(tmp_path, analysis):
    plan = stretto.plan("resnet50", MACHINE)
    for noun in (plan.plan, plan.profile, stretto.load_machine(MACHINE), analysis.summary, analysis.timeline):
        file = tmp_path / "noun.json"
        noun.save(file)
        for again in (type(noun).load(file), pickle.loads(pickle.dumps(noun)), type(noun).from_json(noun.to_json())):
            assert again.to_dict() == noun.to_dict()


def test_notebooks_get_tables(analysis):
    plan = stretto.plan("resnet50", MACHINE)
    simulation = stretto.simulate("resnet50", MACHINE)
    for value in (analysis, analysis.summary, plan, plan.plan, simulation, simulation.timeline):
        assert value._repr_html_().startswith("<")
    tensor = stretto.TensorSpec("<b>", [3])
    assert "&lt;b&gt;" in stretto.Plan.single([tensor])._repr_html_()


def test_plans_by_hand():
    tensors = [stretto.TensorSpec("b", [3]), stretto.TensorSpec("a", [4, 5])]
    plan = stretto.Plan(tensors, [stretto.Bucket(0, 10), stretto.Bucket(10, 23)])
    assert plan.bytes == 92 and plan.tensor_names(0) == ["b", "a"] and plan.tensor_names(1) == ["a"]
    assert plan.hash != stretto.Plan.single(tensors).hash
    with pytest.raises(stretto.InvalidArgument):
        stretto.Plan(tensors, [stretto.Bucket(0, 10)])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: stretto.plan("resnet51", MACHINE), stretto.InvalidArgument, "resnet50"),
        (lambda: stretto.plan("resnet50"), stretto.InvalidArgument, "machine"),
        (lambda: stretto.plan("resnet50", "dgx-h1000"), stretto.InvalidArgument, "dgx-h100"),
        (lambda: stretto.plan("resnet50", MACHINE, schedule="later"), stretto.InvalidArgument, "overlap"),
        (lambda: stretto.analyze("/nowhere/trace.json"), stretto.InvalidArgument, "/nowhere/trace.json"),
        (lambda: stretto.Plan.load("/nowhere/plan.json"), stretto.InvalidArgument, "/nowhere/plan.json"),
        (lambda: stretto.Plan.from_json('{"schema": "stretto.plan/1", "tensors": [], "bukets": []}'), stretto.ParseError, "bukets"),
        (lambda: stretto.tune(), stretto.Unavailable, "plan"),
    ],
)
def test_errors_are_typed_and_say_what_to_do(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call()
    assert isinstance(caught.value, stretto.Error)
    assert caught.value.code and caught.value.message
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)


def test_errors_are_also_what_python_has_for_them():
    assert issubclass(stretto.InvalidArgument, ValueError)
    assert issubclass(stretto.PeerLost, ConnectionError)
    assert issubclass(stretto.Timeout, TimeoutError)


def test_measure():
    found = stretto.measure("all_reduce", max_bytes="64K", arguments=("--budget", "100ms"))
    assert [row["wrong"] for row in found.rows] == [0] * len(found.rows)
    assert found.machine is not None and found.machine.ranks == 2 and found.machine.basis == "measured"
    assert stretto.plan("resnet50", found.machine).ranks == 2
    with pytest.raises(stretto.InvalidArgument):
        stretto.measure("all_to_none")


def test_the_program():
    assert program("--version").stdout.strip() == f"stretto {stretto.__version__}"
    assert program("analize").returncode == 2


def test_everything_public_is_documented():
    for name in stretto.__all__:
        value = getattr(stretto, name)
        if callable(value):
            assert value.__doc__, name
