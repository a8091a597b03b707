# SPDX-License-Identifier: Apache-2.0
"""Seeds one violation per rule into a small repository and expects exactly that one to be reported."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
CLEAN = {
    "stretto/base/error.hpp": SPDX + "#pragma once\n#include <string>\n",
    "stretto/base/CMakeLists.txt": "# SPDX-License-Identifier: Apache-2.0\n"
    "target_sources(s PUBLIC FILE_SET HEADERS FILES error.hpp)\n",
    "stretto/data/plan.hpp": SPDX + '#pragma once\n#include "stretto/base/error.hpp"\n',
    "stretto/data/plan.cpp": SPDX + "#include <nlohmann/json.hpp>\n#include <fmt/format.h>\n",
    "stretto/data/json.hpp": SPDX + "#include <nlohmann/json.hpp>\n",  # Not installed: not listed.
    "stretto/data/CMakeLists.txt": "# SPDX-License-Identifier: Apache-2.0\n"
    "target_sources(s PRIVATE plan.cpp PUBLIC FILE_SET HEADERS FILES plan.hpp)\n",
    "stretto/comm/comm.cpp": SPDX + '#include "stretto/data/plan.hpp"\nint snprintf(char*);\n'
    '// printf("in a comment") and std::cout\nconst char* text = "std::cerr puts(";\n',
    "stretto/workload/mlp.cpp": SPDX + '#include <Eigen/Dense>\n#include "stretto/run/session.hpp"\n',
    "cli/main.cpp": SPDX + '#include <iostream>\n#include <nlohmann/json.hpp>\n#include "stretto/plan/x.hpp"\n',
    "README.md": "Build it in ~/src, see /usr/include and build/dev.\n",
}


class CheckLayersTest(unittest.TestCase):
    def problems(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder, "parent", "clone")
            for name, text in {**CLEAN, **changes}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.replace("@ROOT@", str(root)), encoding="utf-8")
            subprocess.run(["git", "init", "--quiet", str(root)], check=True)
            return check_layers.Checker(root).check()

    def expect(self, name, text, *parts):
        found = self.problems({name: text})
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_clean_tree_passes(self):
        self.assertEqual(self.problems({}), [])

    def test_this_repository_knows_all_its_folders(self):
        for direct in list(check_layers.LAYERS.values()) + list(check_layers.STRICTER.values()):
            for folder in direct:
                self.assertIn(folder, check_layers.LAYERS)

    def test_installed_headers_are_complete(self):
        self.expect(
            "stretto/data/plan.hpp",
            SPDX + '#pragma once\n#include "stretto/data/json.hpp"\n',
            "stretto/data/plan.hpp:3: an installed header may not include one that is not: <stretto/data/json.hpp>",
        )

    def test_include_table(self):
        self.expect(
            "stretto/plan/planner.cpp",
            SPDX + '\n#include "stretto/comm/work.hpp"\n',
            "stretto/plan/planner.cpp:3: stretto/plan may not include comm "
            "(allowed: base, data, simulate)",
        )

    def test_base_includes_nothing(self):
        self.expect(
            "stretto/base/x.hpp",
            SPDX + '#include "stretto/data/plan.hpp"\n',
            "may not include data (allowed: the standard library only)",
        )

    def test_transitive_includes_are_allowed(self):
        text = SPDX + '#include "stretto/comm/work.hpp"\n#include "stretto/base/error.hpp"\n'
        self.assertEqual(self.problems({"stretto/workload/x.cpp": text}), [])

    def test_stricter_part_of_a_folder(self):
        fine = SPDX + '#include "stretto/compress/codec/int8.hpp"\n#include "stretto/base/error.hpp"\n'
        self.assertEqual(self.problems({"stretto/compress/codec/x.cpp": fine}), [])
        for header in ("stretto/data/plan.hpp", "stretto/compress/exchange.hpp"):
            self.expect(
                "stretto/compress/codec/x.cpp",
                SPDX + f'#include "{header}"\n',
                "stretto/compress/codec may not include",
                "(allowed: base)",
            )

    def test_unknown_folder(self):
        self.expect("stretto/utils/x.cpp", SPDX, "stretto/utils/x.cpp:1: is in no known folder")

    def test_relative_include(self):
        self.expect("stretto/data/x.cpp", SPDX + '#include "plan.hpp"\n', "from the root")

    def test_json(self):
        text = SPDX + "#include <nlohmann/json.hpp>\n"
        self.expect("stretto/comm/x.cpp", text, "comm may not include <nlohmann/json.hpp>")
        self.expect("stretto/data/plan.hpp", text, "an installed header may not include")

    def test_eigen_and_zlib(self):
        self.expect("stretto/run/x.cpp", SPDX + "#include <Eigen/Core>\n", "Eigen belongs to workload/")
        self.expect("stretto/data/x.cpp", SPDX + "#include <zlib.h>\n", "zlib belongs to trace/ and workload/")
        self.expect("stretto/data/x.cpp", SPDX + "#include <pugixml.hpp>\n", "pugixml and toml++ belong to topology/")
        self.expect("stretto/analyze/x.cpp", SPDX + "#include <sqlite3.h>\n", "zstd and SQLite belong to trace/")

    def test_fmt_in_a_header_even_a_private_one(self):
        self.expect("stretto/comm/x.hpp", SPDX + "#include <fmt/format.h>\n", "fmt is for .cpp files")

    def test_device_headers(self):
        for header in ("cuda_runtime.h", "mpi.h", "torch/torch.h", "nccl.h"):
            self.expect("stretto/data/plan.hpp", SPDX + f"#include <{header}>\n", f"<{header}>")
        self.assertEqual(self.problems({"stretto/comm/mpi.cpp": SPDX + "#include <mpi.h>\n"}), [])

    def test_headers_for_programs(self):
        self.assertEqual(self.problems({"stretto/torch.hpp": SPDX + "#include <torch/torch.h>\n"}), [])
        self.expect("stretto/run/x.cpp", SPDX + '#include "stretto/torch.hpp"\n', "may not include torch.hpp")
        self.expect("stretto/other.hpp", SPDX, "is in no known folder")

    def test_printing(self):
        self.expect("stretto/run/x.cpp", SPDX + "#include <iostream>\n", ":2: the library never prints")
        for statement in (
            'std::cout << "x";',
            'std::fprintf(file, "x");',
            'printf("x");',
            'std::puts("x");',
            'fmt::print("x");',
        ):
            self.expect("stretto/run/x.cpp", SPDX + statement + "\n", ":2: the library never prints")

    def test_licence_line(self):
        for name, text in (
            ("stretto/run/x.cpp", "int x;\n"),
            ("tools/x.py", "x = 1\n"),
            ("tools/x.sh", "#!/bin/sh\n"),
            ("setup", "#!/bin/sh\n"),
            ("cmake/x.cmake", "set(x 1)\n"),
        ):
            self.expect(name, text, f"{name}:1: the first lines must hold")

    def test_machine_paths(self):
        self.expect("docs/x.md", "see\n@ROOT@/build\n", "docs/x.md:2: names a folder of one machine")
        self.expect("docs/x.md", "cd @ROOT@/../shared\n", "names a folder of one machine")
        home = "/".join(["", "home", "ada", "stretto"])  # Put together, or this file would be reported.
        self.expect("docs/x.md", f"cd {home}\n", "names a folder of one machine")

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "init", "--quiet", folder], check=True)
            bad = pathlib.Path(folder, "stretto", "base", "x.cpp")
            bad.parent.mkdir(parents=True)
            bad.write_text("int x;\n", encoding="utf-8")
            tool = [sys.executable, str(ROOT / "tools" / "check_layers.py"), folder]
            result = subprocess.run(tool, capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 1)
            self.assertIn("stretto/base/x.cpp:1:", result.stdout)
            bad.write_text(SPDX, encoding="utf-8")
            self.assertEqual(subprocess.run(tool, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
