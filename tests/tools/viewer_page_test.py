# SPDX-License-Identifier: Apache-2.0
"""cmake/BuildViewer.cmake on pages of ours: ESBUILD names the bundler."""

import base64
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ESBUILD = os.environ["ESBUILD"]
WASM = b"\0asm" + bytes(range(256)) * 64


class ViewerPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.wasm = self.folder / "stretto.wasm"
        self.wasm.write_bytes(WASM)

    def sources(self, script="", style="", name="clone"):
        """A clone with a page of our own."""
        viewer = self.folder / name / "viewer"
        (viewer / "src").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "viewer/index.html", viewer)
        shutil.copy(ROOT / "viewer/tsconfig.json", viewer)
        (viewer.parent / "THIRD_PARTY_NOTICES").write_text("of <others>\n", encoding="utf-8")
        (viewer / "src/main.ts").write_text(f"import './style.css';\n{script}\n", encoding="utf-8")
        (viewer / "src/style.css").write_text(style, encoding="utf-8")
        return viewer

    def build(self, viewer, esbuild=ESBUILD, wasm=None):
        binary = viewer.parent / "binary"
        return subprocess.run(
            [
                "cmake",
                f"-DOUTPUT={viewer.parent / 'page.cpp'}",
                f"-DSOURCE={viewer}",
                f"-DBINARY={binary}",
                f"-DESBUILD={esbuild}",
                f"-DWASM={self.wasm if wasm is None else wasm}",
                "-P",
                ROOT / "cmake/BuildViewer.cmake",
            ],
            capture_output=True,
            text=True,
            check=False,
        )

    def page(self, viewer, **options):
        result = self.build(viewer, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return (viewer.parent / "binary/page.html").read_text(encoding="utf-8")

    def embedded(self, viewer):
        """The bytes that the library is given, and how many it is told."""
        code = (viewer.parent / "page.cpp").read_text(encoding="utf-8")
        array = re.search(r"kPage\[\] = {(.*?)}", code, re.S)[1]
        size = int(re.search(r"kPage\), (\d+)}", code)[1])
        return bytes(int(byte, 16) for byte in re.findall(r"0x(..)", array)), size

    def test_the_policy_names_the_very_script_and_style(self):
        viewer = self.sources("console.log('é; [a] ${b} \\\\ @@STYLE@@', 1);", "main { color: red; }")
        page = self.page(viewer)
        for part in ("script", "style"):
            text = re.search(f"<{part}(?: type=\"module\")?>(.+?)</{part}>", page, re.S)[1]
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            self.assertIn(f"{part}-src 'sha256-{digest}'", page)
        self.assertIn("é; [a] ${b} \\\\ @@STYLE@@", page)
        self.assertNotIn("@@POLICY@@", page)

    def test_planner_and_notices_stand_in_the_page(self):
        page = self.page(self.sources("console.log(1);", "main { color: red; }"))
        packed = re.search('id="wasm">(.*?)</script>', page, re.S)[1]
        self.assertEqual(gzip.decompress(base64.b64decode(packed)), WASM)
        self.assertIn('id="notices">of ‹others>\n</script>', page)

    def test_without_a_planner_there_is_none(self):
        page = self.page(self.sources("console.log(1);", "main { color: red; }"), wasm="")
        self.assertIn('id="wasm"></script>', page)
        self.assertIn('id="notices"></script>', page)

    def test_the_same_sources_give_the_same_bytes(self):
        pages = []
        for name, time in (("one", 1), ("another/where/else", 1_000_000_000)):
            os.utime(self.wasm, (time, time))
            viewer = self.sources("console.log('é');", "main { color: red; }", name)
            pages.append(self.page(viewer))
            bytes_, size = self.embedded(viewer)
            self.assertEqual(bytes_, pages[-1].encode())
            self.assertEqual(size, len(bytes_))
        self.assertEqual(*pages)

    def test_the_end_of_a_script_or_style_in_a_string_does_not_end_it(self):
        for word in ("script", "SCRIPT"):
            page = self.page(self.sources(f"document.title = '</{word}>';", "a::after { content: '</STYLE>'; }"))
            self.assertIn(rf"<\/{word}>", page)
            self.assertNotIn("</STYLE", page)

    def test_what_html_reads_as_its_own_is_refused(self):
        result = self.build(self.sources("document.title = '<!-- ';", "main { color: red; }"))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("its script has <!--, which HTML reads as its own", " ".join(result.stderr.split()))

    def test_what_does_not_compile_is_said_with_its_line(self):
        result = self.build(self.sources("const = 1;", "main { color: red; }"))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("main.ts:2:6", result.stderr)

    def test_without_esbuild_the_page_is_empty(self):
        viewer = self.sources("console.log(1);", "main { color: red; }")
        self.assertEqual(self.build(viewer, esbuild="").returncode, 0)
        self.assertEqual(self.embedded(viewer)[1], 0)


if __name__ == "__main__":
    unittest.main()
