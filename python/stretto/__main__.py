# SPDX-License-Identifier: Apache-2.0
"""`python -m stretto` is the program `stretto`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    program = os.path.join(os.path.dirname(__file__), "bin", "stretto")
    if not os.path.exists(program):
        sys.exit(
            "stretto: this build has no program, only the library; expected it at "
            f"{program}. Build with -DSTRETTO_CLI=ON, or reinstall the package."
        )
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
