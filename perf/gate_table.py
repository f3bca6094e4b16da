"""Reads the measurements of perf/gate, judges them, and formats its table.

A shard is (collective, type, mode, extra elements). A type of the form "type:operation" belongs to the sample of
reductions that have no targets.
"""

import math

MEAN_FROM_BYTES = 1 << 10  # smallest size whose ratio is in the geometric means
BUDGETS = {f"{sms}_sms": str(sms) for sms in (4, 8, 16)}  # modes of eager calls with a limited number of thread blocks
APART = {*BUDGETS, "beside"}  # modes that are not compared with other modes
UNITS = {"K": 10, "M": 20, "G": 30}


def bytes_of(text):
    return int(text[:-1]) << UNITS[text[-1]] if text[-1] in UNITS else int(text)


def text_of(size):
    for unit, shift in reversed(UNITS.items()):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def name_of(shard):
    collective, data_type, mode, extra = shard
    return f"{collective}_{data_type.replace(':', '-')}_{mode}" + ("_odd" if extra else "")


# ---- results: rows of {bytes, place, strait_us, nccl_us, wrong, floor_us (only in some)} ----


def floors_of(report):
    """Returns {bytes: microseconds} from the JSON of `strait perf --floors`."""
    return {result["bytes"]: result["floor"]["time_us"] for result in report["results"] if result.get("floor")}


def with_floors(rows, floors):
    return [{**row, "floor_us": floors[row["bytes"]]} if row["bytes"] in floors else row for row in rows]


def rows_of_strait_perf(report):
    """Returns the rows from the JSON of `strait perf --baseline`, without sizes of less than one element per rank."""
    rows = []
    for result in report["results"]:
        for place in ("out_of_place", "in_place"):
            if result["count"] and result[place]:
                rows.append({"bytes": result["bytes"], "place": place, "strait_us": result[place]["time_us"],
                             "nccl_us": result["baseline"][place]["time_us"], "wrong": result[place]["wrong"] or 0})
    return with_floors(rows, floors_of(report))


def rows_of_overlap(strait, nccl):
    """Returns the row of an all-reduce beside matrix products, from each library's best run of
    examples/pytorch/overlap.py. The floor is the time of the products alone."""
    def best(runs):
        return min(runs, key=lambda run: run["side_by_side_us"])
    ours = best(strait)
    return [{"bytes": ours["bytes"], "place": "in_place", "strait_us": ours["side_by_side_us"],
             "nccl_us": best(nccl)["side_by_side_us"], "wrong": 0, "floor_us": ours["products_us"]}]


def times_of_nccl_tests(output):
    """Returns {(bytes, place): (microseconds, wrong)} from the table that a program of nccl-tests prints."""
    times = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) < 13 or not (words[0].isdigit() and words[1].isdigit()) or words[1] == "0":
            continue
        for place, first in (("out_of_place", 5), ("in_place", 9)):
            time_us, wrong = words[first], words[first + 3]
            if time_us != "N/A":
                times[int(words[0]), place] = float(time_us), int(float(wrong)) if wrong != "N/A" else 0
    return times


def merge_nccl_tests(strait_outputs, nccl_outputs):
    """Returns rows with the best time of each library over several runs. Wrong elements of all Strait runs count."""
    def best(outputs):
        merged = {}
        for output in outputs:
            for key, (time_us, wrong) in times_of_nccl_tests(output).items():
                known = merged.get(key, (time_us, 0))
                merged[key] = min(known[0], time_us), known[1] + wrong
        return merged
    strait, nccl = best(strait_outputs), best(nccl_outputs)
    if not strait or strait.keys() != nccl.keys():
        raise ValueError("the two libraries' runs have different sizes, or none")
    return [{"bytes": size, "place": place, "strait_us": time_us, "nccl_us": nccl[size, place][0], "wrong": wrong}
            for (size, place), (time_us, wrong) in strait.items()]


# ---- judging ----


def key_of(shard, row):
    """Returns a key that is equal for rows of the same call in different modes (except those in APART)."""
    collective, data_type, mode, extra = shard
    return collective, data_type, mode if mode in APART else None, extra, row["bytes"], row["place"]


def best_of_nccl(results):
    """Returns {key_of(): (microseconds, mode)}: NCCL's best time of each call over the modes that were run."""
    best = {}
    for shard, rows in results.items():
        for row in rows:
            key, time = key_of(shard, row), (row["nccl_us"], shard[2])
            best[key] = min(best.get(key, time), time)
    return best


def judge(shard, row, targets, best):
    """Returns why a row fails, or "" if it passes. `best`: NCCL's best time of this call, and its mode."""
    collective, data_type, mode, extra = shard
    if row["wrong"]:
        return f"{row['wrong']} wrong elements"
    problems = []
    if row["strait_us"] > best[0] * (1 + targets["noise"]):
        problems.append(f"slower than NCCL's best ({best[1]})")
    table = targets["microseconds"].get(data_type, {}).get(collective, {}).get(mode, {})
    target = {} if extra else {bytes_of(size): time_us for size, time_us in table.items()}
    if row["strait_us"] > target.get(row["bytes"], math.inf):
        problem = f"above its target of {target[row['bytes']]} us"
        near = targets["floor"]
        if "floor_us" not in row or row["bytes"] < bytes_of(near["from"]):
            problems.append(problem)
        elif row["strait_us"] > row["floor_us"] * near["times"]:
            problems.append(f"{problem} and {near['times']} times the floor of {row['floor_us']:.2f} us")
    return " and ".join(problems)


def mean_ratio(rows):
    logs = [math.log(r["nccl_us"] / r["strait_us"]) for r in rows if r["bytes"] >= MEAN_FROM_BYTES]
    return math.exp(sum(logs) / len(logs)) if logs else None


def times_floor(row):
    times = row["strait_us"] / row["floor_us"] if row.get("floor_us") else math.inf
    return f"{times:.2f}" if times < 100 else "-"  # small calls are bound by other things than links


def tabulate(results, targets):
    """Returns (text, number of failures). The text has a line for each size, out of place before in place, with the
    ratio to NCCL in the same mode, NCCL's best time of all modes, and Strait's time over the floor. Then follows a line
    for each shard."""
    lines = [f"{'':<15} {'type':<15} {'mode':<10} {'bytes':>11} {'place':<13} {'Strait us':>10} {'NCCL us':>10} "
             f"{'ratio':>6} {'best':>10} {'floors':>6}  verdict"]
    summary, failures, best = [], 0, best_of_nccl(results)
    for shard, rows in results.items():
        collective, data_type, mode, extra = shard
        failed = 0
        for row in sorted(rows, key=lambda r: (r["bytes"], r["place"] == "in_place")):
            best_us, best_mode = best[key_of(shard, row)]
            why = judge(shard, row, targets, (best_us, best_mode))
            failed += bool(why)
            lines.append(f"{collective:<15} {data_type:<15} {mode:<10} {text_of(row['bytes']):>11} {row['place']:<13} "
                         f"{row['strait_us']:10.2f} {row['nccl_us']:10.2f} {row['nccl_us'] / row['strait_us']:6.2f} "
                         f"{best_us:10.2f} {times_floor(row):>6}  "
                         f"{'FAIL: ' + why if why else 'PASS'}")
        wanted = None if extra or ":" in data_type else targets["mean_ratio"].get(collective, {}).get(mode)
        mean = mean_ratio(rows)
        low = mean is not None and wanted is not None and mean < wanted
        failures += failed + low
        text = "no sizes" if mean is None else f"mean ratio {mean:.2f}"
        if low:
            text += f" FAIL: below {wanted}"
        summary.append(f"# {name_of(shard):<36} {len(rows) - failed:3} of {len(rows):3} pass, {text}")
    return "\n".join(lines + summary), failures
