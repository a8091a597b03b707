# SPDX-License-Identifier: Apache-2.0
"""Tests in this folder run on every rank of a job at once: `stretto run -n 2 -- pytest tests/python/ranks`."""

import datetime
import os

import pytest

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError:
    pytest.exit("needs PyTorch", returncode=5)

# A rank that fails a test leaves the others waiting for so long at most.
TIMEOUT_S = 20.0


@pytest.fixture(scope="session", autouse=True)
def group():
    if "WORLD_SIZE" not in os.environ:
        pytest.exit("start these tests with: stretto run -n 2 -- python -m pytest tests/python/ranks", returncode=5)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def rank(group):
    return dist.get_rank()


@pytest.fixture
def size(group):
    return dist.get_world_size()


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(1234)
