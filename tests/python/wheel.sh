#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel and uses it in an empty environment: tests/python/wheel.sh PYTHON BUILD_TYPE
# Built as the tests are, so that ccache knows the objects; for users it is a Release build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$1 build_type=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

export CXX=c++  # as CMake finds it; without it, the one that Python was built with
flags=$([[ $build_type == Debug ]] && echo -g || echo "-O3")
"$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" . \
  --config-settings "cmake.build-type=$build_type" --config-settings "cmake.define.STRETTO_WERROR=ON" \
  --config-settings "cmake.define.CMAKE_CXX_FLAGS_${build_type^^}=$flags"
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" --disable-pip-version-check install --quiet --no-index --no-deps "$work"/stretto-*.whl
unset PYTHONPATH
cd "$work"
"$work/venv/bin/python" - <<'END'
import importlib.resources
import sys

import stretto

assert "numpy" not in sys.modules and "torch" not in sys.modules
result = stretto.plan("resnet50", "8@5Gbit/s,50us")
assert result.bound_s <= result.predicted_step_s
assert importlib.resources.files(stretto).joinpath("_core.pyi").is_file()
assert importlib.resources.files(stretto).joinpath("py.typed").is_file()
try:
    import stretto.torch
except ModuleNotFoundError as error:
    assert str(error) == "stretto.torch needs PyTorch 2.1 or later: pip install torch", error
else:
    raise SystemExit("stretto.torch came without torch")
END
"$work/venv/bin/python" -m stretto plan resnet50 --machine 8@5Gbit/s,50us --json >/dev/null
"$work/venv/bin/stretto" --version
ls -l "$work"/stretto-*.whl | sed 's/.*stretto-/stretto-/'
