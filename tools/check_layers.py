#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler checks: who includes whom, and a few rules for every file.

    tools/check_layers.py [ROOT]

Prints one line `file:line: what is wrong` per violation and exits with 1 if there is one.
The rules, and why they are there, stand in docs/architecture.md.
"""

import pathlib
import re
import subprocess
import sys

# Folder -> the folders it may include directly. What those may include, it may too.
LAYERS = {
    "base": [],
    "data": ["base"],
    "trace": ["data"],
    "topology": ["data"],
    "report": ["analyze"],
    "comm": ["data"],
    "simulate": ["data"],
    "plan": ["simulate"],
    "analyze": ["plan"],
    "compress": ["comm"],
    "measure": ["comm", "compress", "simulate"],
    "run": ["comm", "compress"],
    "workload": ["run"],
    "tune": ["plan", "run", "analyze", "measure"],
    "serve": ["report", "plan", "analyze", "trace"],
}
# Headers for programs that bring a library of their own. In no folder, so that no file of the library may include them.
FOR_PROGRAMS = {"stretto/torch.hpp"}
# Part of a folder with a stricter rule than the folder.
STRICTER = {"compress/codec": ["base"]}

# Third-party header -> the folders of the library that may include it (None: all), and why. None of them
# may stand in an installed header.
THIRD_PARTY = [
    (re.compile(r"nlohmann/"), ("data", "report"), "JSON belongs to data/ and report/"),
    (re.compile(r"Eigen/|unsupported/Eigen/"), ("workload",), "Eigen belongs to workload/"),
    (re.compile(r"zlib\.h|zconf\.h"), ("trace", "workload"), "zlib belongs to trace/ and workload/"),
    (re.compile(r"zstd\.h|sqlite3\.h"), ("trace",), "zstd and SQLite belong to trace/"),
    (re.compile(r"pugixml|toml\+\+/"), ("topology",), "pugixml and toml++ belong to topology/"),
    (re.compile(r"fmt/"), None, "fmt is for .cpp files"),
    (
        re.compile(r"mpi\.h|cuda|cublas|nccl|nvToolsExt|nvtx3/|hip/|rccl|torch/|ATen/|c10/|caffe2/"),
        None,
        "no CUDA, MPI or torch header in an installed header",
    ),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PRINTS = re.compile(
    r"(?<!\w)(?:(?:v?f?printf|f?puts|putchar|fputc|perror)\s*\(|std::(?:cout|cerr|clog)\b"
    r"|fmt::(?:v?print|println)\s*\()"
)
PRINTING_HEADERS = {"iostream", "print", "fmt/color.h"}

SOURCE_SUFFIXES = {".cpp", ".hpp", ".cu", ".py", ".sh", ".cmake", ".ts"}
SOURCE_NAMES = {"CMakeLists.txt", "setup", "run"}
SPDX = "SPDX-License-Identifier: Apache-2.0"
# Folders that are on every machine and so name none.
COMMON_FOLDERS = {"/", "/tmp", "/usr", "/var", "/opt", "/src", "/build", "/home", "/root", "/mnt"}
PERSONAL_PATH = re.compile(r"(?<![\w.~/$})-])/(?:home|Users)/[A-Za-z0-9_][\w.-]*/|(?<![\w.~/$})-])/root/[\w.]")


def closure(direct):
    """All folders that may be included, given those that may be included directly."""
    seen = set()
    todo = list(direct)
    while todo:
        folder = todo.pop()
        if folder not in seen:
            seen.add(folder)
            todo += LAYERS[folder]
    return seen


def without_comments_and_strings(text):
    """The text with comments and the contents of literals blanked, line breaks kept."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL,
    )
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def is_source(path):
    return path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_NAMES


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.problems = []

    def report(self, path, line, what):
        self.problems.append(f"{path}:{line}: {what}")

    def files(self):
        """Tracked files and new ones that git does not ignore."""
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "-z", "-co", "--exclude-standard"],
            check=True,
            capture_output=True,
        ).stdout.decode()
        names = sorted(set(listed.split("\0")) - {""})
        return [pathlib.PurePosixPath(n) for n in names if (self.root / n).is_file()]

    def check(self):
        for path in self.files():
            try:
                text = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # Data.
            lines = text.splitlines()
            if is_source(path) and not any(SPDX in line for line in lines[:3]):
                self.report(path, 1, f"the first lines must hold '{SPDX}'")
            self.check_paths(path, lines)
            if path.parts[0] == "stretto" and path.suffix in {".cpp", ".hpp"}:
                self.check_library_file(path, text)
        return self.problems

    def check_paths(self, path, lines):
        forbidden = [str(self.root)]
        if str(self.root.parent) not in COMMON_FOLDERS:
            forbidden.append(str(self.root.parent))
        machine = re.compile("|".join(rf"(?<![\w.~/$)}}-]){re.escape(p)}(?![\w.-])" for p in forbidden))
        for number, line in enumerate(lines, 1):
            found = machine.search(line) or PERSONAL_PATH.search(line)
            if found and path.name != ".gitignore":
                self.report(path, number, f"names a folder of one machine: '{found.group(0)}'")

    def is_installed(self, path):
        """Installed headers are those in the FILE_SET of the folder's CMakeLists.txt."""
        folder = pathlib.PurePosixPath(*path.parts[:2])
        lists = self.root / folder / "CMakeLists.txt"
        if path.suffix != ".hpp" or not lists.is_file():
            return False
        _, _, file_set = lists.read_text(encoding="utf-8").partition("FILE_SET HEADERS")
        return str(path.relative_to(folder)) in re.findall(r"[\w./-]+", file_set)

    def check_library_file(self, path, text):
        if str(path) in FOR_PROGRAMS:
            return
        if len(path.parts) < 3 or path.parts[1] not in LAYERS:
            known = ", ".join(sorted(LAYERS))
            self.report(path, 1, f"is in no known folder of the library ({known})")
            return
        folder = path.parts[1]
        for number, line in enumerate(text.splitlines(), 1):
            include = INCLUDE.match(line)
            if include:
                self.check_include(path, folder, number, include.group(1), include.group(2))
        for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
            found = PRINTS.search(line)
            if found:
                self.report(path, number, f"the library never prints: '{found.group(0).strip('( ')}'")

    def check_include(self, path, folder, number, quote, header):
        if header in PRINTING_HEADERS:
            self.report(path, number, f"the library never prints: <{header}>")
        if header.startswith("stretto/"):
            self.check_layer(path, folder, number, header)
            if self.is_installed(path) and not self.is_installed(pathlib.PurePosixPath(header)):
                self.report(path, number, f"an installed header may not include one that is not: <{header}>")
        elif quote == '"':
            self.report(path, number, f'own headers are included from the root: "stretto/.../{header}"')
        for pattern, folders, why in THIRD_PARTY:
            if not pattern.match(header):
                continue
            if folders is not None and folder not in folders:
                self.report(path, number, f"stretto/{folder} may not include <{header}>: {why}")
            elif self.is_installed(path) or (header.startswith("fmt/") and path.suffix == ".hpp"):
                self.report(path, number, f"an installed header may not include <{header}>: {why}")

    def check_layer(self, path, folder, number, header):
        part = "/".join(path.parts[1:3])
        who, direct = (part, STRICTER[part]) if part in STRICTER else (folder, LAYERS[folder])
        included = header.split("/")[1]
        allowed = closure(direct)
        if not header.startswith(f"stretto/{who}/") and included not in allowed:
            listed = ", ".join(sorted(allowed)) or "the standard library only"
            self.report(path, number, f"stretto/{who} may not include {included} (allowed: {listed})")


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems = Checker(root).check()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
