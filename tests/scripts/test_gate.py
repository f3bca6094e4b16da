#!/usr/bin/env python3
"""Unit tests of perf/gate and perf/gate_table.py: what it reads, merges, judges and resumes. Nothing is measured: the programs are stand-ins."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "perf"))  # as for a program of that folder
import gate_table  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("gate", str(ROOT / "perf/gate"))
gate = importlib.util.module_from_spec(importlib.util.spec_from_loader("gate", LOADER))
LOADER.exec_module(gate)

TARGETS = {"noise": 0.02, "floor": {"from": "8K", "times": 1.25}, "microseconds": {"bfloat16": {"all-reduce": {"eager": {"1K": 5.0, "8K": 5.0}}}},
           "mean_ratio": {"all-reduce": {"eager": 1.5}}}
SHARD = ("all-reduce", "bfloat16", "eager", 0)

# As nccl-tests prints them; the last size of all_gather_perf's kind has no element for each rank.
NCCL_TESTS = """# nThread 4 nGpus 1 minBytes 8 maxBytes 2048 step: 2(factor)
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             0  bfloat16     sum      -1     4.00    0.00    0.00       0     4.00    0.00    0.00       0
        1024           512  bfloat16     sum      -1    {0}    0.10    0.15       {1}     7.50    0.14    0.20       0
        2048          1024  bfloat16     sum      -1     9.00    0.23    0.34       0      N/A     N/A     N/A     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.25
"""


def row(strait_us, nccl_us, size=1024, wrong=0):
    return {"bytes": size, "place": "out_of_place", "strait_us": strait_us, "nccl_us": nccl_us, "wrong": wrong}


class Sizes(unittest.TestCase):
    def test_texts_and_bytes(self):
        for text, size in {"8": 8, "1K": 1024, "1536": 1536, "4M": 4 << 20, "1G": 1 << 30}.items():
            self.assertEqual(size, gate_table.bytes_of(text))
            self.assertEqual(text, gate_table.text_of(size))

    def test_every_target_names_a_collective_and_a_size_that_are_measured(self):
        all_targets = json.loads((ROOT / "perf/targets.json").read_text())
        for kind, largest in (("p2p", "1G"), ("no_p2p", "256M")):
            targets = all_targets[kind]
            measured = {(collective, data_type, mode)
                        for collective, data_type, mode, _ in gate.shards(by_strait_perf=True, p2p=kind == "p2p")}
            for data_type, tables in targets["microseconds"].items():
                for collective, modes in tables.items():
                    for mode, table in modes.items():
                        self.assertIn((collective, data_type, mode), measured)
                        for size, time_us in table.items():
                            self.assertIn(gate_table.bytes_of(size), [8 << i for i in range(28)])
                            self.assertLessEqual(gate_table.bytes_of(size), gate_table.bytes_of(largest))
                            self.assertGreater(time_us, 0)
            self.assertGreater(targets["floor"]["times"], 1)
            self.assertGreaterEqual(gate_table.bytes_of(targets["floor"]["from"]), 1 << 20)
        self.assertEqual(set(gate.PROGRAMS), set(all_targets["p2p"]["mean_ratio"]))

    def test_the_decisive_shards_come_first(self):
        names = [gate_table.name_of(shard) for shard in gate.shards(by_strait_perf=True)]
        self.assertEqual("all-reduce_bfloat16_graph", names[0])
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual([f"all-reduce_bfloat16_{sms}_sms" for sms in (4, 8, 16)] + ["all-reduce_bfloat16_beside"], names[1:5])
        self.assertEqual(9 * 3 * 3 + 4 + 12 * 3, len(names))
        self.assertEqual("reduce-scatter_float8_e4m3-sum_graph", names[-36 + 2 * 3 + 1])
        self.assertEqual(9 * 3 * 2 + 4, len(gate.shards(by_strait_perf=False)))
        names = [gate_table.name_of(shard) for shard in gate.shards(by_strait_perf=True, p2p=False)]
        self.assertEqual(["all-reduce_bfloat16_graph", "all-reduce_bfloat16_int8"], names[:2])
        self.assertEqual(9 * 3 * 3 + 1 + 12 * 3, len(set(names)))
        self.assertNotIn("int8", [mode for _, _, mode, _ in gate.shards(by_strait_perf=False, p2p=False)])


class Judging(unittest.TestCase):
    def judge(self, shard=SHARD, **values):
        return gate_table.judge(shard, row(**values), TARGETS, (values["nccl_us"], "graph"))

    def test_as_fast_as_nccl_passes_within_the_noise(self):
        self.assertEqual("", self.judge(strait_us=4.9, nccl_us=4.9))
        self.assertEqual("", self.judge(strait_us=4.99, nccl_us=4.9))
        self.assertEqual("slower than NCCL's best (graph)", self.judge(strait_us=4.99, nccl_us=4.8))

    def test_targets_count_for_their_size_type_and_mode(self):
        self.assertEqual("above its target of 5.0 us", self.judge(strait_us=5.1, nccl_us=9))
        self.assertEqual("", self.judge(strait_us=5.1, nccl_us=9, size=2048))
        for other in (("all-reduce", "float32", "eager", 0), ("all-reduce", "bfloat16", "graph", 0),
                      ("all-gather", "bfloat16", "eager", 0), ("all-reduce", "bfloat16", "eager", 17)):
            self.assertEqual("", self.judge(other, strait_us=5.1, nccl_us=9))

    def test_what_is_as_near_to_the_floor_as_asked_may_miss_the_table(self):
        def judge(strait_us, size=8192, **floor):
            return gate_table.judge(SHARD, {**row(strait_us, 90, size), **floor}, TARGETS, (90, "eager"))
        self.assertEqual("", judge(6.2, floor_us=5))
        self.assertEqual("above its target of 5.0 us and 1.25 times the floor of 5.00 us", judge(6.3, floor_us=5))
        self.assertEqual("", judge(4.9, floor_us=1), "the easier of both")
        self.assertEqual("above its target of 5.0 us", judge(5.1), "no floor")
        self.assertEqual("above its target of 5.0 us", judge(5.1, size=1024, floor_us=5), "small calls have none")
        self.assertEqual("slower than NCCL's best (graph)",
                         gate_table.judge(SHARD, {**row(6, 5, 8192), "floor_us": 5}, TARGETS, (5, "graph")))

    def test_the_table_shows_how_near(self):
        text, failures = gate_table.tabulate({SHARD: [{**row(6, 12, 8192), "floor_us": 5}, row(4, 12, 16384)]}, TARGETS)
        self.assertEqual(0, failures, text)
        self.assertRegex(text, r"8K .* 12\.00 +1\.20  PASS\n.*16K .* 12\.00 +-  PASS\n")

    def test_wrong_elements_fail_however_fast(self):
        self.assertEqual("3 wrong elements", self.judge(strait_us=1, nccl_us=9, wrong=3))

    def test_the_mean_is_geometric_and_leaves_out_the_smallest(self):
        rows = [row(1, 4), row(2, 2, size=2048), row(1, 100, size=512)]
        self.assertAlmostEqual(2, gate_table.mean_ratio(rows))
        self.assertIsNone(gate_table.mean_ratio([row(1, 1, size=8)]))

    def test_the_table_counts_failures_of_rows_and_means(self):
        text, failures = gate_table.tabulate({SHARD: [row(4, 8), row(8, 8, size=2048)]}, TARGETS)
        self.assertEqual(1, failures)  # the mean: 1.41
        self.assertIn("# all-reduce_bfloat16_eager              2 of   2 pass, mean ratio 1.41 FAIL: below 1.5", text)
        text, failures = gate_table.tabulate({SHARD: [row(4, 8), row(9, 8, size=2048), row(1, 9, size=4096)]}, TARGETS)
        self.assertEqual(1, failures)
        self.assertEqual(2, sum(line.endswith("PASS") for line in text.splitlines()))
        self.assertIn("FAIL: slower than NCCL's best (eager)", text)

    def test_every_mode_is_held_against_the_best_of_nccl(self):
        graph, registered = (("all-reduce", "bfloat16", mode, 0) for mode in ("graph", "registered"))
        results = {graph: [row(3, 9)], registered: [row(2, 4)], SHARD: [row(4.5, 9)]}
        text, failures = gate_table.tabulate(results, {**TARGETS, "mean_ratio": {}})
        self.assertEqual(1, failures)  # faster than eager NCCL, slower than on registered buffers
        failed, = (line for line in text.splitlines() if "FAIL" in line)
        self.assertRegex(failed, r"eager +1K .*  2\.00       4\.00      -  FAIL: slower than NCCL's best \(registered\)$")

    def test_samples_of_types_and_operations_have_no_mean_to_reach(self):
        sample = ("all-reduce", "int32:max", "eager", 0)
        text, failures = gate_table.tabulate({sample: [row(4, 4.4)]}, TARGETS)
        self.assertEqual(0, failures, text)
        text, failures = gate_table.tabulate({sample: [row(4, 3.6)]}, TARGETS)
        self.assertEqual(1, failures, text)

    def test_other_calls_are_not_its_best(self):
        others = [(("all-gather", "bfloat16", "graph", 0), row(1, 1)),
                  (("all-reduce", "float32", "graph", 0), row(1, 1)),
                  (("all-reduce", "bfloat16", "graph", 17), row(1, 1)),
                  (("all-reduce", "bfloat16", "4_sms", 0), row(1, 1)),
                  (("all-reduce", "bfloat16", "beside", 0), row(1, 1)),
                  (("all-reduce", "bfloat16", "graph", 0), row(1, 1, size=2048)),
                  (("all-reduce", "bfloat16", "graph", 0), {**row(1, 1), "place": "in_place"})]
        for shard, other in others:
            best = gate_table.best_of_nccl({shard: [other], SHARD: [row(4, 8)]})
            self.assertEqual((8, "eager"), best[gate_table.key_of(SHARD, row(4, 8))])


class Reading(unittest.TestCase):
    def test_strait_perf(self):
        one = {"time_us": 4.0, "wrong": 0}
        report = {"results": [
            {"bytes": 0, "count": 0, "out_of_place": one, "in_place": one,
             "baseline": {"out_of_place": one, "in_place": one}},
            {"bytes": 64, "count": 8, "out_of_place": {"time_us": 3.0, "wrong": None}, "in_place": None,
             "baseline": {"out_of_place": one}}]}
        self.assertEqual([row(3.0, 4.0, size=64)], gate_table.rows_of_strait_perf(report))
        report["results"][1]["floor"] = {"time_us": 2.5, "duplex_time_us": 2.6}
        self.assertEqual([{**row(3.0, 4.0, size=64), "floor_us": 2.5}], gate_table.rows_of_strait_perf(report))

    def test_nccl_tests_best_of_the_rounds_and_all_that_is_wrong(self):
        rows = gate_table.merge_nccl_tests([NCCL_TESTS.format("10.00", 1), NCCL_TESTS.format("8.00", 2)],
                                     [NCCL_TESTS.format("12.00", 0), NCCL_TESTS.format("11.00", 7)])
        self.assertIn(row(8.0, 11.0, wrong=3), rows)
        self.assertEqual([(1024, "out_of_place"), (1024, "in_place"), (2048, "out_of_place")],
                         [(r["bytes"], r["place"]) for r in rows])

    def test_runs_that_do_not_fit_are_an_error(self):
        for strait, nccl in ((NCCL_TESTS.format("1", 0), ""), ("", ""),
                             (NCCL_TESTS.format("1", 0).replace("2048  ", "4096  "), NCCL_TESTS.format("1", 0))):
            with self.assertRaises(ValueError):
                gate_table.merge_nccl_tests([strait], [nccl])


STRAIT = """#!/bin/sh
if [ "$1" = run ]; then shift 3 && SERVED_BY=strait exec "$@"; fi
line="$*"
for name in STRAIT_MAX_SMS NCCL_MAX_CTAS NCCL_P2P_DISABLE STRAIT_P2P NCCL_SHM_USE_CUDA_MEMCPY STRAIT_WIRE; do
  eval "value=\\$$name"
  [ -z "$value" ] || line="$line $name=$value"
done
echo "$line" >>"$CALLS"
case "$line" in
  *" -b 8 -e 8 "*) broken="$STARTLESS" ;;
  *) broken="$BROKEN" ;;
esac
if [ "$2" = "$broken" ]; then echo "no GPU" >&2 && exit 1; fi
while [ "$1" != --json ]; do shift; done
place='{"time_us": 2.0, "wrong": 0}' base='{"time_us": 4.0, "wrong": 0}'
cat >"$2" <<JSON
{"provenance": {}, "transport": {"name": "${TRANSPORT:-host_staged}"},
 "results": [{"bytes": 1024, "count": 8, "out_of_place": $place, "in_place": $place, "floor": {"time_us": 1.0},
              "baseline": {"out_of_place": $base, "in_place": $base}}]}
JSON
"""
PROGRAM = """#!/bin/sh
time=$([ -n "$SERVED_BY" ] && echo 2.0 || echo 4.0)
echo "1024 512 bfloat16 sum -1 $time 0.1 0.1 0 $time 0.1 0.1 0"
"""


# torch.distributed.run, of a PyTorch that there need not be.
TORCHRUN = """import json, os, sys
served = os.environ.get("SERVED_BY", "nccl")
with open(os.environ["CALLS"], "a") as calls:
    print(served, *sys.argv[1:-1], file=calls)
if served == os.environ.get("BROKEN"):
    sys.exit(1)
side_by_side_us = float(os.environ["BESIDE"]) if served == "strait" else 6300
with open(sys.argv[-1], "w") as file:
    json.dump({"bytes": 256 << 20, "products_us": 6000, "all_reduce_us": 1000, "side_by_side_us": side_by_side_us}, file)
"""


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.script("strait", STRAIT)
        self.calls = self.folder / "calls"
        package = self.folder / "packages/torch/distributed"
        package.mkdir(parents=True)
        for path, text in (("../__init__.py", ""), ("__init__.py", ""), ("run.py", TORCHRUN)):
            (package / path).write_text(text)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def gate(self, *arguments, **environment):
        command = [sys.executable, str(ROOT / "perf/gate"), "--baseline", "libm.so.6", "--strait",
                   str(self.folder / "strait"), "--results", str(self.folder / "results"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "CALLS": str(self.calls), "BESIDE": "6100",
                                   "PYTHONPATH": str(self.folder / "packages"), **environment})
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        self.starts = [call for call in calls if " -b 8 -e 8 " in call]
        return done, [call for call in calls if call not in self.starts]

    def test_finished_shards_are_not_run_again(self):
        done, calls = self.gate("--collectives", "reduce", BROKEN="reduce")
        self.assertEqual((1, 21), (done.returncode, len(calls)), done.stderr)
        self.assertIn("# FAIL reduce_bfloat16_graph", done.stdout)
        self.assertIn("no GPU", done.stdout)
        done, calls = self.gate("--collectives", "reduce")
        self.assertEqual((0, 21), (done.returncode, len(calls)), done.stdout)
        self.assertIn("-G 5 --check-limit 4M --extra-elements 0", calls[0])
        self.assertIn("-b 8 -e 1G ", calls[0])
        self.assertIn(" --budget-ms 60", calls[0])
        self.assertTrue(calls[0].endswith(" -t 4"), calls[0])
        self.assertNotIn("NCCL_P2P_DISABLE", "".join(calls))
        self.assertIn("-G 0 --check-limit", calls[1])
        self.assertIn("-G 0 -R 2 --check-limit", calls[2])
        self.assertIn(" -d int32 -o max -f 4 -b 1K -e 256M -w 5 -G 5 ", calls[9])
        self.assertNotIn(" -o ", "".join(calls[:9]))
        self.assertIn("# 0 failures; 21 of 21 shards are done\n", done.stdout)
        done, calls = self.gate("--collectives", "reduce")
        self.assertEqual((0, []), (done.returncode, calls))

    def test_finished_shards_fit_into_one_file(self):
        path = self.folder / "all.json"
        self.gate("--collectives", "reduce", "--json", str(path))
        kept = json.loads(path.read_text())
        self.assertEqual(21, len(kept["shards"]))
        row = dict(zip(kept["columns"], kept["shards"]["reduce_bfloat16_graph"][0]))
        self.assertEqual({"bytes": 1024, "place": "out_of_place", "strait_us": 2.0, "nccl_us": 4.0, "wrong": 0,
                          "floor_us": 1.0}, row)
        self.assertEqual(4, kept["settings"]["gpus"])
        done, calls = self.gate("--collectives", "reduce", "--table", "--json", str(path))
        self.assertEqual((0, []), (done.returncode, calls))
        self.assertEqual(kept, json.loads(path.read_text()))

    def test_both_libraries_are_given_the_same_few_thread_blocks(self):
        _, calls = self.gate("--collectives", "all-reduce")
        few = [call for call in calls if "-b 256M -e 256M -w 5 -G 0 --check-limit" in call]
        for sms, call in zip((4, 8, 16), few, strict=True):
            self.assertTrue(call.endswith(f" -t 4 STRAIT_MAX_SMS={sms} NCCL_MAX_CTAS={sms}"), call)
        others = [call for call in calls if call not in few and "overlap.py" not in call]
        self.assertEqual(21, len(others))
        self.assertFalse([call for call in others if "NCCL_MAX_CTAS" in call])

    def test_an_all_reduce_beside_matrix_products(self):
        done, calls = self.gate("--collectives", "all-reduce", "--gpus", "3")
        beside = [call for call in calls if "overlap.py" in call]
        self.assertEqual(["nccl", "strait"] * 2, [call.split()[0] for call in beside])
        self.assertIn(f"--nproc-per-node 3 {ROOT}/examples/pytorch/overlap.py --json", beside[0])
        line, = (line for line in done.stdout.splitlines() if " beside " in line)
        self.assertRegex(line, r"256M in_place +6100\.00 +6300\.00 +1\.03 +6300\.00 +1\.02  PASS$")
        for us, why in (("6200", "above its target of 6080 us and 1.031 times the floor of 6000.00 us"),
                        ("6430", "slower than NCCL's best (beside)")):
            done, _ = self.gate("--collectives", "all-reduce", "--results", str(self.folder / us), BESIDE=us)
            line, = (line for line in done.stdout.splitlines() if " beside " in line)
            self.assertIn(why, line)
        done, _ = self.gate("--collectives", "all-reduce", "--results", str(self.folder / "none"), BROKEN="strait")
        self.assertIn("# FAIL all-reduce_bfloat16_beside: ", done.stdout)
        self.assertIn("overlap.py --json", done.stdout)

    def test_without_p2p_both_of_nccls_ways_are_measured(self):
        done, calls = self.gate("--collectives", "all-gather", "--no-p2p")
        self.assertEqual((0, 9), (done.returncode, len(calls)), done.stdout + done.stderr)
        for i, call in enumerate(calls):
            self.assertIn("-b 64K -e 64M " if i > 5 else "-b 8 -e 256M ", call)
            self.assertTrue(call.endswith(" NCCL_P2P_DISABLE=1 STRAIT_P2P=off" + " NCCL_SHM_USE_CUDA_MEMCPY=1" * (i % 3 == 2)), call)
        self.assertEqual(18, done.stdout.count("4.00   2.00  PASS"), done.stdout)
        _, calls = self.gate("--collectives", "all-reduce", "--no-p2p", "--results", str(self.folder / "others"))
        in_int8 = [call for call in calls if "STRAIT_WIRE" in call]
        self.assertEqual(1, len(in_int8))
        self.assertTrue(in_int8[0].endswith(" NCCL_P2P_DISABLE=1 STRAIT_P2P=off STRAIT_WIRE=int8"), in_int8)
        self.assertIn("-b 1M -e 256M ", in_int8[0])

    def test_what_went_by_p2p_all_the_same_is_no_result(self):
        done, _ = self.gate("--collectives", "all-gather", "--no-p2p", TRANSPORT="cuda_p2p")
        self.assertEqual(1, done.returncode)
        self.assertIn("went by cuda_p2p, not through host memory", done.stdout)
        self.assertIn("# 9 failures; 0 of 9 shards are done", done.stdout)

    def test_ranks_may_be_processes(self):
        self.script("mpirun", '#!/bin/sh\n[ "$1 $2" = "-np 3" ] || exit 7\nshift 2\nexec "$@"\n')
        done, calls = self.gate("--collectives", "reduce", "--launcher", f"{self.folder}/mpirun -np 3")
        self.assertEqual((0, 21), (done.returncode, len(calls)), done.stdout + done.stderr)
        self.assertFalse([call for call in calls if " -t " in call])
        self.script("reduce_perf", PROGRAM)
        done, _ = self.gate("--collectives", "reduce", "--launcher", f"{self.folder}/mpirun -np 3", "--nccl-tests",
                            str(self.folder), "--results", str(self.folder / "others"))
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        done, calls = self.gate("--collectives", "reduce")
        self.assertEqual([], calls)
        self.assertIn("other settings", done.stderr)

    def test_no_shard_is_begun_when_the_time_is_over(self):
        done, calls = self.gate("--collectives", "reduce", "--minutes", "-1")
        self.assertEqual((2, []), (done.returncode, calls), done.stdout)
        self.assertIn("0 of 21 shards are done. Run again for the rest", done.stdout)

    def test_results_of_another_build_are_refused(self):
        self.gate("--collectives", "reduce")
        self.script("strait", STRAIT + "# another build\n")
        done, calls = self.gate("--collectives", "reduce")
        self.assertNotEqual(0, done.returncode)
        self.assertEqual([], calls)
        self.assertIn("another build. Name another folder", done.stderr)

    def test_nccl_tests_programs_run_under_both_libraries(self):
        self.script("reduce_perf", PROGRAM)
        done, _ = self.gate("--collectives", "reduce", "--nccl-tests", str(self.folder))
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual(12, done.stdout.count("  2.00       4.00   2.00  PASS"), done.stdout)

    def test_what_fails_in_every_shard_is_said_once(self):
        done, calls = self.gate(STARTLESS="all-reduce")
        self.assertEqual((1, [], 1), (done.returncode, calls, len(self.starts)), done.stdout)
        self.assertEqual("gate: no shard can be run: no GPU", done.stderr.splitlines()[-1])
        self.assertNotIn("FAIL", done.stdout)
        self.gate("--collectives", "reduce")
        self.assertEqual(1, len(self.starts))
        self.assertIn(" --baseline libm.so.6 ", self.starts[0])
        self.gate("--collectives", "reduce")
        self.assertEqual([], self.starts, "nothing was left to run")

    def test_a_baseline_that_the_loader_leaves_out_is_no_baseline(self):
        self.script("reduce_perf", PROGRAM)
        self.script("text.so", "no library")
        for name in ("none/libnccl.so.2", "libnone.so.2", str(self.folder / "text.so")):
            for more in ([], ["--nccl-tests", str(self.folder)]):
                done, calls = self.gate("--collectives", "reduce", *more, "--baseline", name)
                self.assertEqual((2, [], []), (done.returncode, calls, self.starts), done.stdout)
                self.assertRegex(done.stderr, f"gate: error: --baseline: .*{name}.*. Give NVIDIA's libnccl.so.2")
        self.gate("--collectives", "reduce")
        done, _ = self.gate("--collectives", "reduce", "--table", "--baseline", "libnone.so.2")
        self.assertEqual(0, done.returncode, done.stderr)

    def test_what_cannot_be_run_is_refused_before_anything_is(self):
        for bad in (["--collectives", "reduce,all-reduec"], ["--strait", str(self.folder / "none")],
                    ["--nccl-tests", str(self.folder / "none")]):
            done, calls = self.gate(*bad)
            self.assertEqual((2, 0), (done.returncode, len(calls)), done.stderr)
            self.assertRegex(done.stderr, r"gate: error: .*(all-reduec|none)")


if __name__ == "__main__":
    unittest.main()
