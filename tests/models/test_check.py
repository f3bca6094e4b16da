#!/usr/bin/env python3
"""Unit tests of check.py: what it accepts and, more importantly, what it refuses."""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check

# Two processes count to two. With RACE they read and write in separate steps; with NOBODY_ENDS one waits for ever.
MODEL = """// mutants: RACE=assertion NOBODY_ENDS=deadlock
byte count, done;
active [2] proctype Counter() {
  byte seen;
#ifdef RACE
  seen = count;
  printf("%d has seen %d\\n", _pid, seen);
  count = seen + 1;
#else
  atomic { seen = count; count = seen + 1 };
#endif
  done++;
#ifdef NOBODY_ENDS
  done > 2;
#endif
  assert(done < 2 || count == 2)
}
"""

HELD = """Full statespace search for:
State-vector 60 byte, depth reached 102, errors: 0
    35943 states, stored
unreached in proctype Counter
\t(0 of 10 states)
"""


class Head(unittest.TestCase):
    def test_variants_and_mutants(self):
        runs = check.runs_of("// variants: A B\n// mutants: X=assertion\n// mutants: B:Y=deadlock\nbyte x;\n")
        self.assertEqual([(["A"], "holds"), (["B"], "holds"), (["A", "X"], "assertion"), (["B", "Y"], "deadlock")],
                         [tuple(run) for run in runs])

    def test_a_model_as_it_is(self):
        self.assertEqual([([], "holds"), (["X"], "deadlock")],
                         [tuple(run) for run in check.runs_of("// mutants: X=deadlock\n")])

    def test_what_is_refused(self):
        for text in ("byte x;", "// variants: A\n", "// mutants: X\n", "// mutants: X=failure\n",
                     "// variants: A\n// mutants: B:X=assertion\n"):
            self.assertRaises(check.Wrong, check.runs_of, text)


class Report(unittest.TestCase):
    def test_outcomes(self):
        self.assertEqual("holds", check.outcome(HELD))
        failed = HELD.replace("errors: 0", "errors: 1")
        self.assertEqual("assertion", check.outcome("pan:1: assertion violated (x==1) (at depth 3)\n" + failed))
        self.assertEqual("deadlock", check.outcome("pan:1: invalid end state (at depth 3)\n" + failed))

    def test_what_is_refused(self):
        for report in ("", "pan: out of memory\n", HELD.replace("errors: 0", "errors: 1"),
                       "error: max search depth too small\n" + HELD,
                       "Warning: Search not completed\n" + HELD,
                       HELD + "\tcounter.pml:9, state 4, \"done = (done+1)\"\n"):
            self.assertRaises(check.Wrong, check.outcome, report)


class Models(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "counter.pml"
            model.write_text(text, encoding="utf-8")
            return check.check(model)

    def assert_refused(self, text, *reasons):
        with self.assertRaises(check.Wrong) as refused:
            self.check(text)
        for reason in reasons:
            self.assertIn(reason, str(refused.exception))

    def test_a_model_and_its_mutants(self):
        lines = self.check(MODEL)
        self.assertEqual(["as it is: holds", "RACE: assertion", "NOBODY_ENDS: deadlock"],
                         [line.split(",")[0] for line in lines])

    def test_a_model_that_is_wrong_shows_how(self):
        self.assert_refused(MODEL.replace("#ifdef RACE", "#ifndef RACE"), "holds was expected", "has seen 0")

    def test_a_mutant_that_nothing_tells_from_the_model(self):
        self.assert_refused(MODEL.replace("RACE=", "RICE="), "RICE: assertion was expected, and found: holds")

    def test_a_mutant_that_fails_otherwise(self):
        self.assert_refused(MODEL.replace("RACE=assertion", "RACE=deadlock"), "deadlock was expected", "assertion")

    def test_statements_that_are_never_reached(self):
        self.assert_refused(MODEL + "active proctype Idle() { do :: done > 9 -> count = 0 :: done == 2 -> break od }\n",
                            "never reached", "count = 0")

    def test_a_search_that_is_cut_short(self):
        with mock.patch.object(check, "DEPTH", 5):
            self.assert_refused(MODEL, "max search depth too small")

    def test_what_spin_does_not_understand(self):
        self.assert_refused(MODEL.replace("byte count, done;", "byte count;"), "spin", "Error:")


if __name__ == "__main__":
    if check.lacking():
        print(f"skipped: {' and '.join(check.lacking())} not installed; scripts/setup.sh does it")
        sys.exit(check.SKIPPED)
    unittest.main()
