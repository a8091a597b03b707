# SPDX-License-Identifier: Apache-2.0
"""What `./setup test` counts, on the forms that ctest 3.25 writes."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import ctest_counts  # noqa: E402


def suite(*cases):
    return "<testsuite>" + "".join(cases) + "</testsuite>"


class CtestCountsTest(unittest.TestCase):
    def test_passed_and_failed(self):
        text = suite(
            '<testcase name="a" status="run"><system-out>fine</system-out></testcase>',
            '<testcase name="b" status="fail"><failure message=""/></testcase>',
        )
        self.assertEqual(ctest_counts.counts(text), (1, ["b"], []))

    def test_reason_of_a_skipped_gtest(self):
        text = suite(
            '<testcase name="a" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
            "<system-out>[ RUN ] A\nx_test.cpp:3: Skipped\nno data set\n[  SKIPPED ] A</system-out>"
            "</testcase>"
        )
        self.assertEqual(ctest_counts.counts(text), (0, [], [("a", "no data set")]))

    def test_reason_of_a_skipped_script(self):
        text = suite(
            '<testcase name="a" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
            "<system-out>looking\nno pkg-config</system-out></testcase>"
        )
        self.assertEqual(ctest_counts.counts(text), (0, [], [("a", "no pkg-config")]))

    def test_a_test_that_was_not_built_has_failed(self):
        text = suite(
            '<testcase name="run_test_NOT_BUILT" status="notrun">'
            '<skipped message="Unable to find executable: run_test_NOT_BUILT"/></testcase>'
        )
        self.assertEqual(ctest_counts.counts(text), (0, ["run_test_NOT_BUILT"], []))


if __name__ == "__main__":
    unittest.main()
