#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stretto.torch.DDP under the mpirun of one MPI: mpi_test.py openmpi|mpich PYTHON. Exits with 77 if it is not there.

STRETTO_MODULES names the folder of the modules, PYTHONPATH that of the package.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "comm" / "mpi"))

from launchers import LAUNCHERS  # noqa: E402


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


launcher = next(one for one in LAUNCHERS if one.name == sys.argv[1])
python = sys.argv[2]
if why := launcher.missing(os.environ["STRETTO_MODULES"]):
    skip(why)
if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
    skip("needs PyTorch")
# Open MPI asks every interface otherwise, also those that reach nobody.
flags = ["--mca", "btl_tcp_if_include", "lo"] if launcher.name == "openmpi" else []
failed = False
for ranks, what in ((2, "trains"), (2, "disagrees")):
    done = launcher.run(ranks, python, str(HERE / "mpi_ranks.py"), what, flags=flags, timeout=170)
    well = done.stdout.count(f"{what}: all is well")
    # After a failure MPI is not finalised, and mpirun may complain of that.
    if well != ranks or (what == "trains" and done.returncode != 0):
        failed = True
        print(f"{what}: {well} of {ranks} ranks, exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
sys.exit(failed)
