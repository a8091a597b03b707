# SPDX-License-Identifier: Apache-2.0
"""./setup against a machine whose dpkg, apt-get, cmake and id are scripts of ours."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone = pathlib.Path(folder.name, "clone")
        self.bin = pathlib.Path(folder.name, "bin")
        self.clone.mkdir()
        self.bin.mkdir()
        shutil.copy(ROOT / "setup", self.clone)
        self.command(
            "dpkg-query",
            'test -e "$HOME/installed" || test "$3" = cmake || exit 1; printf installed',
        )
        self.command(
            "apt-get",
            'echo "apt-get $*" >> "$HOME/calls"; case "$*" in *install*) touch "$HOME/installed";; esac',
        )
        self.command("id", "echo 0")
        self.command(
            "cmake",
            'mkdir -p build/release/cli; echo "#!/bin/sh\necho demo: \\$*" > build/release/cli/stretto; '
            "chmod +x build/release/cli/stretto; echo noise of cmake",
        )

    def command(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def setup(self, *arguments, path="/usr/bin:/bin"):
        return subprocess.run(
            [self.clone / "setup", *arguments],
            env={"PATH": f"{self.bin}:{path}", "HOME": str(self.clone)},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_help(self):
        for arguments in ([], ["help"], ["--help"]):
            result = self.setup(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn("./setup demo", result.stdout)

    def test_unknown_word(self):
        result = self.setup("tset")
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no 'tset'", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_demo_installs_what_is_missing_and_passes_arguments_on(self):
        result = self.setup("demo", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "demo: demo --json\n")  # Nothing but the program's own.
        calls = (self.clone / "calls").read_text(encoding="utf-8")
        self.assertIn(" update", calls)
        self.assertIn("libeigen3-dev", calls)
        self.assertNotIn(" cmake", calls)  # Is there already.
        self.assertIn(" esbuild", calls)
        self.assertIn("matrix products", result.stderr)

    def test_nothing_is_installed_twice(self):
        self.setup("demo")
        before = (self.clone / "calls").read_text(encoding="utf-8")
        self.assertEqual(self.setup("demo").returncode, 0)
        self.assertEqual((self.clone / "calls").read_text(encoding="utf-8"), before)

    def test_node_is_for_the_tests_and_only_where_there_is_none(self):
        tools = self.clone / "tools"
        tools.mkdir()
        for name in ("bash", "cat", "dirname", "mkdir", "sh"):
            (tools / name).symlink_to(shutil.which(name))
        self.command("id", "echo 1000")
        for there in (False, True):
            if there:
                self.command("node", "")
                self.command("npm", "")
            for word, wanted in (("demo", False), ("test", not there)):
                result = self.setup(word, path=str(tools))
                self.assertEqual(result.returncode, 5, result.stderr)
                self.assertEqual("nodejs npm" in result.stderr, wanted, (word, there))

    def test_without_root_it_says_what_to_run(self):
        self.command("id", "echo 1000")
        result = self.setup("demo")
        self.assertEqual(result.returncode, 5)
        self.assertIn("sudo apt-get install", result.stderr)
        self.assertIn("libeigen3-dev", result.stderr)
        self.assertFalse((self.clone / "calls").exists())

    def test_without_network_it_says_so(self):
        self.command("apt-get", "echo E: could not resolve; exit 100")
        result = self.setup("demo")
        self.assertEqual(result.returncode, 5)
        self.assertIn("could not resolve", result.stderr)
        self.assertIn("Is the network there", result.stderr)

    def test_a_failed_build_is_not_run(self):
        self.command("cmake", "echo error: no such thing >&2; exit 1")
        result = self.setup("demo")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no such thing", result.stderr)


if __name__ == "__main__":
    unittest.main()
