# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on one rank is a typed error on all of them, soon, that names rank and parameter."""

import json
import multiprocessing
import socket

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

import failing

# Far below any time-out (30 s and more) that is not the error itself.
SOON_S = 20


@pytest.fixture(scope="module")
def starter():
    """Starts processes that have imported torch already."""
    context = multiprocessing.get_context("forkserver")
    # By names that it finds without this folder; optimizers want torch._dynamo, which takes seconds.
    context.set_forkserver_preload(["torch", "torch._dynamo", "stretto.torch"])
    return context


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def outcomes(starter, how, backend, folder, ranks=2, **variables):
    port = str(free_port())
    rendezvous = folder / "rendezvous"
    rendezvous.mkdir(mode=0o700)
    processes = []
    for rank in range(ranks):
        environment = {
            "STRETTO_RANK": str(rank),
            "STRETTO_WORLD_SIZE": str(ranks),
            "STRETTO_RENDEZVOUS": str(rendezvous),
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            **variables,
        }
        processes.append(starter.Process(target=failing.main, args=(how, backend, str(folder), environment)))
        processes[-1].start()
    for process in processes:
        process.join(60)
        if process.is_alive():
            process.kill()
            process.join()
    seen = {}
    for rank in range(ranks):
        file = folder / f"seen{rank}.json"
        if file.exists():
            seen[rank] = json.loads(file.read_text())
            assert seen[rank]["seconds"] < SOON_S, seen[rank]
    assert seen, "no rank said anything: " + str([process.exitcode for process in processes])
    return seen


BOTH = pytest.mark.parametrize("backend", ["shm", "process_group"])


@BOTH
def test_models_of_different_shapes(starter, backend, tmp_path):
    seen = outcomes(starter, "shapes", backend, tmp_path)
    for rank in (0, 1):
        assert seen[rank]["type"] == "Mismatch", seen
        assert "rank 1" in seen[rank]["text"] and "first.weight" in seen[rank]["text"]
        assert "[8, 6]" in seen[rank]["text"] and "[7, 6]" in seen[rank]["text"]


@pytest.mark.parametrize("how, words", [("counts", ["fourth.weight"]), ("types", ["first.weight", "f32", "f64"])])
def test_models_of_different_parameters(starter, how, words, tmp_path):
    seen = outcomes(starter, how, "shm", tmp_path)
    for rank in (0, 1):
        assert seen[rank]["type"] == "Mismatch", seen
        assert all(word in seen[rank]["text"] for word in ["rank 1", *words]), seen


def test_different_options(starter, tmp_path):
    seen = outcomes(starter, "options", "shm", tmp_path)
    for rank in (0, 1):
        assert seen[rank]["type"] == "Mismatch", seen
        assert "find_unused_parameters=True" in seen[rank]["text"]


@BOTH
@pytest.mark.parametrize("when", ["", "_first"])
def test_unused_without_permission(starter, backend, when, tmp_path):
    seen = outcomes(starter, "unused" + when, backend, tmp_path)
    for rank in (0, 1):
        assert seen[rank]["type"] == "NeverReady", seen
        assert "third.weight" in seen[rank]["text"] and "rank 1" in seen[rank]["text"]
        assert "find_unused_parameters=True" in seen[rank]["text"]


@BOTH
@pytest.mark.parametrize("when", ["", "_first"])
def test_exception_in_backward(starter, backend, when, tmp_path):
    seen = outcomes(starter, "backward_raises" + when, backend, tmp_path)
    assert seen[1]["type"] == "ValueError" and seen[1]["text"] == "a bug in a layer"
    assert seen[0]["outcome"] == "error", seen
    assert "rank 1" in seen[0]["text"], seen
    assert "backward raised an exception" in seen[0]["text"], seen
    assert "'second." in seen[0]["text"], seen  # the last gradient before it


@BOTH
def test_killed_rank(starter, backend, tmp_path):
    seen = outcomes(starter, "killed", backend, tmp_path)
    assert 1 not in seen
    assert seen[0]["type"] == "PeerLost", seen
    if backend == "shm":
        assert "rank 1" in seen[0]["text"]
        assert (tmp_path / "stderr0").read_text() == ""  # no STRETTO_DEBUG


def test_killed_rank_of_three(starter, tmp_path):
    seen = outcomes(starter, "killed", "shm", tmp_path, ranks=3)
    for rank in (0, 2):
        assert seen[rank]["type"] == "PeerLost" and "rank 1" in seen[rank]["text"], seen


def test_rank_that_leaves(starter, tmp_path):
    seen = outcomes(starter, "left", "shm", tmp_path)
    assert seen[0]["type"] == "PeerLost" and "rank 1" in seen[0]["text"], seen


# ---- the schedule priority ----


@pytest.mark.parametrize("phase", ["in_backward", "between", "in_forward"])
def test_killed_rank_while_updates_wait(starter, phase, tmp_path):
    seen = outcomes(starter, "overlap_killed_" + phase, "shm", tmp_path)
    assert 1 not in seen
    assert seen[0]["type"] == "PeerLost" and "rank 1" in seen[0]["text"], seen


def test_optimizer_that_raises_in_an_update_that_waited(starter, tmp_path):
    seen = outcomes(starter, "overlap_gives_up", "shm", tmp_path)
    assert seen[1]["type"] == "ValueError" and seen[1]["text"] == "a bug in a layer", seen
    assert seen[0]["type"] == "BackendError" and "rank 1" in seen[0]["text"], seen
    assert "the optimizer raised ValueError in an update" in seen[0]["text"], seen


# ---- STRETTO_DEBUG=1 ----


def lines_about(folder, rank, word):
    text = (folder / f"stderr{rank}").read_text()
    return [line for line in text.splitlines() if line.startswith("stretto: ") and word in line], text


@BOTH
def test_debug_names_a_rank_that_is_late(starter, backend, tmp_path):
    seen = outcomes(starter, "late", backend, tmp_path, STRETTO_DEBUG="1")
    assert [seen[rank]["outcome"] for rank in (0, 1)] == ["went on", "went on"], seen
    waits, text = lines_about(tmp_path, 0, "has waited")
    assert len(waits) == 2, text  # after one second and after two
    for line in waits:
        assert "step 3: rank 0 has waited" in line and "for the mean of the gradients, now bucket 0" in line, text
        assert "rank 1 has been in backward for" in line, text
        assert "last gradient 'second." in line and "without first.weight and 1 more" in line, text
    assert "rank 0 goes on after" in lines_about(tmp_path, 0, "goes on")[0][0], text
    assert not lines_about(tmp_path, 1, "rank 1 has waited")[0]  # who is late waits for nobody


@BOTH
def test_debug_names_a_rank_that_never_comes(starter, backend, tmp_path):
    seen = outcomes(starter, "never", backend, tmp_path, STRETTO_DEBUG="1")
    waits, text = lines_about(tmp_path, 0, "rank 1 has been in backward")
    assert len(waits) >= 2, text
    assert not lines_about(tmp_path, 0, "goes on")[0], text
    assert seen[0]["type"] == "Timeout", seen
