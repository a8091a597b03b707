#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the file that `ctest --output-junit` wrote.

    tools/ctest_counts.py JUNIT_XML

First line: passed, failed and skipped, as three numbers. Then one line per failed test,
`failed NAME`, and one per skipped test, `skipped NAME: REASON`. A test that could not be run, for example
because it was not built, has failed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# How GoogleTest prints GTEST_SKIP() << "reason": the place, then the reason.
GTEST_REASON = re.compile(r": Skipped\n(.*)")
SKIPPED_ON_PURPOSE = {"SKIP_REGULAR_EXPRESSION_MATCHED", "SKIP_RETURN_CODE=77"}


def counts(text):
    passed, failed, skipped = 0, [], []
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = case.get("name")
        status = case.get("status")
        output = case.findtext("system-out") or ""
        skip = case.find("skipped")
        if status == "run":
            passed += 1
        elif status == "disabled":
            skipped.append((name, "disabled"))
        elif skip is not None and skip.get("message") in SKIPPED_ON_PURPOSE:
            reason = GTEST_REASON.search(output)
            last = output.strip().splitlines()[-1:] or ["no reason given"]
            skipped.append((name, reason.group(1).strip() if reason else last[0]))
        else:
            failed.append(name)
    return passed, failed, skipped


def main(arguments):
    with open(arguments[0], encoding="utf-8") as file:
        passed, failed, skipped = counts(file.read())
    print(passed, len(failed), len(skipped))
    for name in failed:
        print(f"failed {name}")
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
