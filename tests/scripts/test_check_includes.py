"""The layer rule on small trees: each wrong tree is refused for the reason it was made for."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import check_includes  # noqa: E402


class CheckIncludes(unittest.TestCase):
    def problems(self, files):
        """What is wrong with a tree of {path: includes}."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            for path, includes in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text("".join(f"#include {name}\n" for name in includes), encoding="utf-8")
            return check_includes.check(root)[0]

    def assert_one_problem(self, files, text):
        problems = self.problems(files)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(text, problems[0])

    def test_downward_and_sideways_are_allowed(self):
        self.assertEqual([], self.problems({
            "src/base/error.hpp": ["<string>"],
            "src/plan/plan.hpp": ['"base/error.hpp"'],
            "src/plan/layout.hpp": ['"plan.hpp"'],
            "src/executor/host/run.cpp": ['"plan/plan.hpp"', '"kernels/sum.hpp"'],
            "src/kernels/sum.hpp": ['"base/error.hpp"'],
            "include/strait/strait.h": ["<stddef.h>"],
            "src/communicator/api.cpp": ['"strait/strait.h"', '"executor/host/run.cpp"'],
            "tests/unit/test.cpp": ['"plan/plan.hpp"', "<strait/strait.h>"],
        }))

    def test_upward_include(self):
        self.assert_one_problem({
            "src/base/error.hpp": ['"plan/plan.hpp"'],
            "src/plan/plan.hpp": [],
        }, "src/base/error.hpp includes src/plan/plan.hpp: upward, from src/base to src/plan")

    def test_upward_include_relative_to_the_file(self):
        self.assert_one_problem({
            "src/base/error.hpp": ['"../communicator/communicator.hpp"'],
            "src/communicator/communicator.hpp": [],
        }, "upward, from src/base to src/communicator")

    def test_circle_of_files(self):
        self.assert_one_problem({
            "src/plan/a.hpp": ['"plan/b.hpp"'],
            "src/plan/b.hpp": ['"plan/c.hpp"'],
            "src/plan/c.hpp": ['"plan/a.hpp"'],
        }, "a circle of includes: src/plan/a.hpp -> src/plan/b.hpp -> src/plan/c.hpp -> src/plan/a.hpp")

    def test_circle_of_folders_without_a_circle_of_files(self):
        self.assert_one_problem({
            "src/plan/a.hpp": ['"topology/b.hpp"'],
            "src/topology/b.hpp": [],
            "src/topology/c.hpp": ['"plan/d.hpp"'],
            "src/plan/d.hpp": [],
        }, "a circle of includes: src/plan -> src/topology -> src/plan")

    def test_public_headers_stand_alone(self):
        self.assert_one_problem({
            "include/strait/strait.h": ['"base/error.hpp"'],
            "src/base/error.hpp": [],
        }, "include may include public headers only")

    def test_examples_use_public_headers_only(self):
        self.assert_one_problem({
            "examples/sum.cpp": ["<strait/strait.h>", '"plan/plan.hpp"'],
            "include/strait/strait.h": [],
            "src/plan/plan.hpp": [],
        }, "examples may include public headers only")

    def test_folder_without_a_layer(self):
        self.assert_one_problem({
            "src/plan/plan.hpp": ['"attic/old.hpp"'],
            "src/attic/old.hpp": [],
        }, "src/attic is in no layer")

    def test_exit_status(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "src/base").mkdir(parents=True)
            source = Path(folder) / "src/base/a.hpp"
            script = [sys.executable, str(SCRIPTS / "check_includes.py"), folder]
            source.write_text("int a;\n" * 401, encoding="utf-8")
            passed = subprocess.run(script, capture_output=True, text=True, check=False)
            source.write_text('#include "a.hpp"\n', encoding="utf-8")
            failed = subprocess.run(script, capture_output=True, text=True, check=False)
        self.assertEqual(0, passed.returncode, passed.stdout)
        self.assertIn("warning: src/base/a.hpp: 401 lines", passed.stdout)
        self.assertEqual(1, failed.returncode, failed.stdout)


if __name__ == "__main__":
    unittest.main()
