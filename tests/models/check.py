#!/usr/bin/env python3
"""Checks a model of a protocol with spin, in all its variants, and that spin finds its mutants wrong.

  check.py MODEL.pml            the whole check
  check.py MODEL.pml --show X   what goes wrong in the mutant X, step by step

The head of a model says what is expected:
  // variants: LINES BULK     the model holds with -DLINES, and with -DBULK. Without this line: as it is
  // mutants: NO_CREDIT=assertion BULK:NO_FENCE=assertion NO_ABORT=deadlock
                              with -DNO_CREDIT an assertion fails, in the first variant or in the one that is named
A model holds if spin has searched all states, found no error, and reached every statement.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which
from typing import NamedTuple

SKIPPED = 77  # tells CTest that the test was not run
MEMORY_MB = 2048
SECONDS = 120  # limit for each program
DEPTH = 1_000_000
HOLDS = "holds"
ERRORS = {"assertion violated": "assertion", "invalid end state": "deadlock"}  # by the verifier's message


class Wrong(Exception):
    """Says in words why the check fails."""


class Run(NamedTuple):
    """A model with some macros defined, and the expected outcome."""
    macros: list
    expected: str

    def name(self):
        return " ".join(self.macros) or "as it is"

    def options(self):
        return [f"-D{macro}" for macro in self.macros]


def runs_of(text):
    """Returns the runs that the head of a model asks for."""
    def words(key):
        return [word for line in re.findall(rf"^// {key}:(.*)$", text, re.MULTILINE) for word in line.split()]

    variants = words("variants") or [""]
    runs = [Run([variant] if variant else [], HOLDS) for variant in variants]
    for word in words("mutants"):
        match = re.fullmatch(r"(?:(\w+):)?(\w+)=(\w+)", word)
        if not match or match[3] not in ERRORS.values() or (match[1] or variants[0]) not in variants:
            raise Wrong(f"'{word}' is not a mutant, [VARIANT:]NAME=" + "|".join(ERRORS.values()))
        variant = match[1] or variants[0]
        runs.append(Run([variant, match[2]] if variant else [match[2]], match[3]))
    if len(runs) == len(variants):
        raise Wrong("the model names no mutants: nothing shows that it can fail")
    return runs


def outcome(report):
    """Returns HOLDS or the error, according to the verifier's output."""
    errors = re.search(r"errors: (\d+)", report)
    if not errors:
        raise Wrong("the verifier did not come to its end:\n" + report)
    if errors[1] != "0":
        for sign, error in ERRORS.items():
            if sign in report:
                return error
        raise Wrong("an error of another kind:\n" + report)
    for sign in ("max search depth too small", "Search not completed"):
        if sign in report:
            raise Wrong(f"not all states were searched ({sign}):\n{report}")
    unreached = re.findall(r"^\t(\S+:\d+, state \d+, .*)$", report, re.MULTILINE)
    if unreached:
        raise Wrong("never reached, so that the model says nothing of it:\n" + "\n".join(unreached))
    return HOLDS


def output_of(words, folder):
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise Wrong(f"{words[0]} took more than {SECONDS} s") from late
    return done.returncode, done.stdout + done.stderr


def make(words, folder):
    status, output = output_of(words, folder)
    # After an error spin continues with a model that differs from what was written.
    if status != 0 or "Error:" in output:
        raise Wrong(f"{' '.join(words)} failed:\n{output}")


def verify(model, run, folder):
    """Runs the verifier and returns its output. If it finds an error, it leaves a trail in `folder`."""
    make(["spin", *run.options(), "-a", str(model)], folder)
    # -O2 costs more time than it gains; for mutants, which end soon, so does any optimisation.
    speed = "-O1" if run.expected == HOLDS else "-O0"
    make(["gcc", speed, "-w", "-DSAFETY", "-DVECTORSZ=2048", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"], folder)
    return output_of(["./pan", f"-m{DEPTH}", "-w20"], folder)[1]


def steps_to_error(model, run, folder):
    return output_of(["spin", *run.options(), "-k", f"{folder}/{model.name}.trail", "-t", str(model)], folder)[1]


def check(model):
    """Returns a line for each run. Raises Wrong if the outcome of one is not as expected."""
    lines = []
    for run in runs_of(model.read_text(encoding="utf-8")):
        with tempfile.TemporaryDirectory() as folder:
            report = verify(model, run, folder)
            found = outcome(report)
            if found != run.expected:
                steps = "" if found == HOLDS else "\n" + steps_to_error(model, run, folder)
                raise Wrong(f"{run.name()}: {run.expected} was expected, and found: {found}{steps}")
        states = re.search(r"(\S+) states, stored", report)[1]
        lines.append(f"{run.name()}: {found}, {states} states")
    return lines


def show(model, mutant):
    """Returns the steps to a mutant's error."""
    for run in runs_of(model.read_text(encoding="utf-8")):
        if run.macros and run.macros[-1] == mutant and run.expected != HOLDS:
            with tempfile.TemporaryDirectory() as folder:
                verify(model, run, folder)
                return [steps_to_error(model, run, folder)]
    raise Wrong(f"there is no mutant {mutant}")


def lacking():
    """Returns the tools that are not installed."""
    return [tool for tool in ("spin", "gcc") if which(tool) is None]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--show", metavar="MUTANT")
    arguments = parser.parse_args()
    if lacking():
        print(f"skipped: {' and '.join(lacking())} not installed; scripts/setup.sh does it")
        return SKIPPED
    model = arguments.model.resolve()
    try:
        print("\n".join(show(model, arguments.show) if arguments.show else check(model)))
        return 0
    except Wrong as wrong:
        print(f"{model.name}: {wrong}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
