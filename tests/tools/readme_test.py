# SPDX-License-Identifier: Apache-2.0
"""The program in README.md is the one that tests/install builds and runs against an installed Stretto."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ReadmeTest(unittest.TestCase):
    def test_program(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        program = (ROOT / "tests" / "install" / "main.cpp").read_text(encoding="utf-8")
        _, _, program = program.partition("\n")  # Without the licence line.
        self.assertEqual(re.findall(r"```cpp\n(.*?)```", readme, re.DOTALL), [program])

    def test_files_it_links_to_exist(self):
        for name in ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "docs/architecture.md"]:
            page = ROOT / name
            for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
                self.assertTrue((page.parent / link).exists(), f"{name}: {link}")


if __name__ == "__main__":
    unittest.main()
