"""Whether the pages hold together: links and their anchors, commands with their options, and times in tables, which must
be those of the results that their section names."""

import json
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
STRAIT = sys.argv.pop(1) if len(sys.argv) > 1 else None


def fenced(text):
    """By line: whether it is in a block that is fenced or indented, so no prose; and the line."""
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        yield inside or line.startswith("    "), line


def anchors(page):
    """As GitHub makes them of headings."""
    found = set()
    for is_block, line in fenced(page.read_text()):
        if is_block or not re.match("#+ ", line):
            continue
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
        anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        same = sum(known == anchor or known.startswith(anchor + "~") for known in found)
        found.add(anchor if not same else f"{anchor}~{same}")
    return {anchor.replace("~", "-") for anchor in found}


def commands(text):
    """Every `strait SUBCOMMAND ...` of a page, in backticks or in a block; of several lines, with backslashes, as one."""
    text = text.replace("\\\n", " ")
    yield from re.findall(r"`(strait [a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S))
    for is_block, line in fenced(text):
        found = re.search(r"(?:^|[\s/`])(strait [a-z][^`#|>&;]*)", line) if is_block else None
        if found:
            yield found[1]


def options_of(words):
    """Those of Strait, not those of the program that it runs."""
    own = words[:words.index("--")] if "--" in words else words
    return [word.split("=")[0] for word in own if re.match(r"--?[A-Za-z]", word)]


def numbers(value):
    """All of a result file; also those within texts, such as the tables of nccl-tests."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {number for part in value for number in numbers(part)}
    if isinstance(value, str):
        return {float(text) for text in re.findall(r"\b\d+\.\d+\b", value)}
    return {float(value)} if isinstance(value, (int, float)) else set()


def times(section):
    """Those of its tables' cells, "63.04 (1.51)" or "1.51 (2114)": the time and a ratio, which is never a whole number.
    Of two digits and less most would be found by chance."""
    for first, second in re.findall(r"\|\s*\**(\d+(?:\.\d+)?) \((\d+(?:\.\d+)?)", section):
        time = first if "." in second else second
        if len(time.replace(".", "")) >= 3:
            yield time


def is_among(time, found):
    """As far as it is rounded; microseconds may be shown as milliseconds."""
    half_digit = 0.5001 * 10 ** -len(time.partition(".")[2])
    return any(abs(number * scale - float(time)) <= half_digit for number in found for scale in (1, 1e-3))


class Pages(unittest.TestCase):
    def test_links_resolve(self):
        for page in PAGES:
            for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if "://" in link:
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(target.exists())
                    if anchor and target.suffix == ".md":
                        self.assertIn(anchor, anchors(target))

    def test_sources_name_pages_that_are_there(self):
        for folder in ("src", "tools", "include", "transports", "algorithms", "perf", "examples"):
            for source in (ROOT / folder).rglob("*"):
                if source.suffix not in (".c", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".inl", ".py"):
                    continue
                for name, anchor in re.findall(r"docs/([\w-]+\.md)(?:#([\w-]+))?", source.read_text()):
                    with self.subTest(source=source.name, page=name, anchor=anchor):
                        page = ROOT / "docs" / name
                        self.assertTrue(page.exists())
                        if anchor:
                            self.assertIn(anchor, anchors(page))

    def test_times_are_those_of_the_results(self):
        looked_at = 0
        for page in ("performance.md", "performance-without-p2p.md", "performance-hosts.md", "experiments.md",
                     "experiments-without-p2p.md", "experiments-hosts.md"):
            for section in re.split(r"(?m)^(?=##+ )", (ROOT / "docs" / page).read_text()):
                files = sorted(set(re.findall(r"\(\.\./(perf/results/[\w.]+\.json)", section)))
                found = {number for file in files for number in numbers(json.loads((ROOT / file).read_text()))}
                for time in times(section):
                    with self.subTest(page=page, section=section.splitlines()[0], time=time):
                        self.assertTrue(is_among(time, found), f"in none of {', '.join(files)}")
                    looked_at += 1
        self.assertGreater(looked_at, 700, "the tables show more times than that")

    def test_commands_have_these_options(self):
        if STRAIT is None:
            self.skipTest("the command was not built")
        helps = {}
        looked_at = 0
        for page in PAGES:
            for command in commands(page.read_text()):
                words = shlex.split(command.replace("...", ""))
                if len(words) < 2:
                    continue
                if words[1] not in helps:
                    told = subprocess.run([STRAIT, words[1], "--help"], capture_output=True, text=True, timeout=60)
                    helps[words[1]] = told.stdout if told.returncode == 0 else ""
                with self.subTest(page=page.name, command=command):
                    self.assertNotEqual(helps[words[1]], "", "no such subcommand")
                    for option in options_of(words[2:]):
                        self.assertRegex(helps[words[1]], rf"(?m)(^\s+|,){re.escape(option)}\b")
                        looked_at += 1
        self.assertGreater(looked_at, 50, "the pages show more options than that")


if __name__ == "__main__":
    unittest.main()
