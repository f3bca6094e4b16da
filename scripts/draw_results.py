#!/usr/bin/python3
"""Draws committed results (perf/results): GPUs beside NCCL, few thread blocks, what each of them takes, rounds of two hops,
small calls, all-reduces beside matrix products, training, ranks behind one link, and losses of wire formats. Needs python3-matplotlib.

  scripts/draw_results.py [FOLDER]   writes gpu_vs_nccl.svg, gpu_vs_nccl_all.svg, few_blocks.svg, clusters.svg, block_ends.svg, rounds.svg,
                                     small_calls.svg, hosts.svg, overlap.svg, training.svg, shared_link.svg and wire_loss.svg there; into docs/images if absent
"""
import collections
import json
import pathlib
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "strait", "font.family": "sans-serif"})
from matplotlib import pyplot  # noqa: E402: after the choice of the backend

ROOT = pathlib.Path(__file__).resolve().parent.parent
PANELS = (
    ("4x H200, NVLink", "gate_4xh200"),
    ("2x H200, NVLink", "gate_2xh200"),
    ("4x H200 without P2P", "gate_no_p2p_4xh200"),
    ("2x H200 without P2P", "gate_no_p2p_2xh200"),
)
# Colours of Okabe and Ito, told apart with any colour vision; markers for print.
STYLES = {
    "all-reduce": ("#0072b2", "o"),
    "all-gather": ("#d55e00", "s"),
    "reduce-scatter": ("#009e73", "^"),
    "all-to-all": ("#cc79a7", "D"),
    "broadcast": ("#e69f00", "v"),
    "reduce": ("#56b4e9", "P"),
    "gather": ("#8c564b", "<"),
    "scatter": ("#7f7f7f", ">"),
    "send-recv": ("#000000", "x"),
}
WAYS = {  # of ranks behind one link: whether they form islands, and whether CPU threads add up
    (False, True): ("CPU threads", "#d55e00", "s"),
    (True, False): ("islands", "#0072b2", "o"),
    (True, True): ("islands, CPU threads across", "#009e73", "^"),
}
KERNELS = (False, False)
FEW_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "reduce")  # the last is the one that loses most
FORMATS = {  # of gradients: wire format and error feedback
    ("off", False): ("exact", "#000000"),
    ("int8", False): ("int8", "#0072b2"),
    ("fp8", False): ("fp8", "#009e73"),
    ("int4", False): ("int4", "#d55e00"),
    ("int4", True): ("int4 with error feedback", "#cc79a7"),
}


BLOCKS = (  # of an all-reduce: whose times, and how
    ("Strait, other kernels", "#e69f00", "v", "before", "other kernels"),
    ("Strait, pipes before", "#009e73", "^", "before", "pipes, two hops"),
    ("Strait, pipes", "#0072b2", "o", "after", "pipes"),
)


BESIDE = {  # thread blocks of an all-reduce beside matrix products; None: NCCL's 24
    None: ("NCCL", "#000000", "x"),
    128: ("128 blocks", "#e69f00", "v"),
    32: ("32", "#cc79a7", "D"),
    24: ("24", "#56b4e9", "P"),
    20: ("20", "#009e73", "^"),
    16: ("16, the default", "#0072b2", "o"),
    12: ("12", "#d55e00", "s"),
}


TRAININGS = (  # a bar each: its label, of which run, and with how many thread blocks (of int8 those that are the default)
    ("no P2P, NCCL", "NCCL", {"NCCL_P2P_DISABLE": "1"}, "0"),
    ("no P2P, Strait", "Strait", {"STRAIT_P2P": "off"}, "0"),
    ("no P2P, Strait, int8", "Strait", {"STRAIT_P2P": "off", "STRAIT_WIRE": "int8"}, "48"),
    ("NVLink, NCCL", "NCCL", {}, "0"),
)
TRAINING_COLOURS = {"NCCL": "#8c8c8c", "Strait": "#0072b2"}


def size_name(size_bytes: int) -> str:
    for unit, shift in (("GB", 30), ("MB", 20), ("KB", 10)):
        if size_bytes >> shift:
            return f"{size_bytes >> shift} {unit}"
    return f"{size_bytes} B"


def read(name: str) -> dict:
    return json.loads((ROOT / "perf/results" / f"{name}.json").read_text())


def plot(axes, points: list, colour: str, marker: str, label: str) -> None:
    axes.plot(*zip(*sorted(points)), color=colour, marker=marker, markersize=4, linewidth=1.4, label=label)


def prepare(axes, title: str, sizes: list, of_ratios: bool = True) -> None:
    if of_ratios:
        axes.axhline(1, color="#444444", linewidth=1)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_name(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(color="#e3e3e3", linewidth=0.8)
    axes.tick_params(labelsize=8)


def save(figure, handles_and_labels: tuple, columns: int, output: pathlib.Path, top: float = 0.9) -> None:
    figure.legend(*handles_and_labels, loc="upper center", ncols=columns, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, top))
    figure.savefig(output, metadata={"Date": None})


def draw_beside_nccl(output: pathlib.Path, collectives: tuple) -> None:
    figure, grid = pyplot.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True)
    ratios = []
    for axes, (title, name) in zip(grid.flat, PANELS):
        shards = read(name)["shards"]
        for collective in collectives:
            points = [(size, nccl_us / strait_us)
                      for size, place, strait_us, nccl_us, *_ in shards.get(f"{collective}_bfloat16_graph", [])
                      if place == "out_of_place" and size >= 1 << 10]
            if points:
                plot(axes, points, *STYLES[collective], collective)
                ratios += [ratio for _, ratio in points]
        prepare(axes, f"{title}, bf16, CUDA graphs, NCCL without NVLS", [1 << shift for shift in range(10, 31, 4)])
    lowest, highest = min(ratios) / 1.08, max(ratios) * 1.08
    for axes in grid.flat:
        axes.set_yscale("log")
        axes.set_ylim(lowest, highest)
        axes.axhspan(lowest, 1, color="#d55e00", alpha=0.12, linewidth=0)
        axes.set_yticks([tick for tick in (0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4, 5) if lowest <= tick <= highest])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("NCCL's time / Strait's (tinted: NCCL is faster)", fontsize=9)
    save(figure, grid[0, 0].get_legend_handles_labels(), 5, output, 0.93)


def draw_few_blocks(output: pathlib.Path) -> None:
    result = read("pipes_2xh100")
    runs = [run for run in result["runs"] if run["collective"] == "all-reduce"]
    nccl = [run for run in runs if run["environment"].get("NCCL_MAX_CTAS")]
    figure, grid = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for axes, size in zip(grid.flat, (64 << 20, 256 << 20)):
        def time_of(run, whose):
            return next(row[whose] for row in run["results"] if row["bytes"] == size)
        for label, colour, marker, state, how in BLOCKS:
            best = {}  # by blocks: the way that the library takes, and the best of several runs
            for run in runs:
                blocks = int(run["environment"].get("STRAIT_MAX_SMS") or 0)
                if run["state"] == state and run["how"].startswith(how) and blocks:
                    best[blocks] = min(time_of(run, "out_of_place_us"), best.get(blocks, float("inf")))
            plot(axes, list(best.items()), colour, marker, label)
        plot(axes, [(int(run["environment"]["NCCL_MAX_CTAS"]), time_of(run, "nccl_out_of_place_us")) for run in nccl]
             + [(24, result["nccl_us"]["all-reduce"][str(size >> 20)][0])], "#000000", "x", "NCCL")
        axes.set_title(f"all-reduce of {size_name(size)}, 2x H100, CUDA graphs", fontsize=10, loc="left")
        axes.set_xlabel("thread blocks", fontsize=9)
        axes.set_xticks([8, 16, 24, 32, 48, 64])
        axes.set_ylim(bottom=0)
        axes.grid(color="#e3e3e3", linewidth=0.8)
        axes.tick_params(labelsize=8)
    grid.flat[0].set_ylabel("microseconds", fontsize=9)
    save(figure, grid.flat[0].get_legend_handles_labels(), len(BLOCKS) + 1, output, 0.95)


def draw_clusters(output: pathlib.Path) -> None:
    senders = read("clusters_4xh200")["senders"]
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 3.8))
    for axes, (collective, blocks) in zip(panels, (("all-reduce", 16), ("reduce-scatter", 32))):
        for way, colour, marker in ((f"{blocks} blocks", "#d9822b", "s"), (f"{blocks} blocks, clusters of 4", "#1f6f8b", "o")):
            points = [(block, time_us) for block, _, time_us in senders[collective][way]]
            plot(axes, points, colour, marker, "in clusters of four" if "clusters" in way else "without clusters")
        axes.set_title(f"{collective} of 1 GB, {blocks} thread blocks, 4x H200", fontsize=10, loc="left")
        axes.set_xlabel("thread block", fontsize=9)
        axes.set_ylabel("sends for microseconds", fontsize=9)
        axes.grid(color="#e3e3e3", linewidth=0.8)
        axes.tick_params(labelsize=8)
    save(figure, panels[0].get_legend_handles_labels(), 2, output)


def draw_block_ends(output: pathlib.Path) -> None:
    traces = read("block_shares_4xh200")["traces"]
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 3.8))
    ways = (("all-gather", "#1f6f8b", "o", "128 blocks"), ("all-gather, clusters of 8", "#d9822b", "s", "in clusters of eight"))
    for axes, shown in zip(panels, (ways, (("all-reduce", "#1f6f8b", "o", "64 blocks"),))):
        for name, colour, marker, label in shown:
            ends = sorted(end_us for _, _, _, end_us in traces[name])
            plot(axes, [(end_us, 100 * (i + 1) / len(ends)) for i, end_us in enumerate(ends)], colour, marker, label)
        axes.set_title(f"{shown[0][0]} of 64 MB, 4x H200", fontsize=10, loc="left")
        axes.set_xlabel("microseconds", fontsize=9)
        axes.set_ylabel("thread blocks that have ended, %", fontsize=9)
        axes.grid(color="#e3e3e3", linewidth=0.8)
        axes.tick_params(labelsize=8)
        axes.legend(frameon=False, fontsize=8)
    save(figure, ([], []), 1, output)


def draw_rounds(output: pathlib.Path) -> None:
    results = read("rounds_of_two_hops_4xh100")
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 3.8))
    for axes, (collective, sizes_mb) in zip(panels, (("reduce", (4, 8, 16, 32)), ("broadcast", (2, 4, 8, 16)))):
        for size_mb, (colour, marker) in zip(sizes_mb, STYLES.values()):
            points = [(int(way.split()[0]), time_us) for way, rows in results[collective].items()
                      for size_bytes, time_us, _ in rows if size_bytes == size_mb << 20]
            plot(axes, points, colour, marker, f"{size_mb} MB")
        axes.set_title(f"{collective}, 4x H100", fontsize=10, loc="left")
        axes.set_xlabel("rounds", fontsize=9)
        axes.set_ylabel("microseconds", fontsize=9)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.grid(color="#e3e3e3", linewidth=0.8)
        axes.tick_params(labelsize=8)
        axes.legend(frameon=False, fontsize=8)
    save(figure, ([], []), 1, output)


def draw_small_calls(output: pathlib.Path) -> None:
    """Before prompt kernels and with them; NCCL from the gate, another machine of the kind."""
    results, gate = read("prompt_4xh200"), read("gate_4xh200")["shards"]
    figure, grid = pyplot.subplots(1, 4, figsize=(11, 3.4), sharey=True)
    most_bytes = 512 << 10
    for axes, collective in zip(grid, ("all-reduce", "all-gather", "reduce-scatter", "broadcast")):
        nccl = [(row[0], row[3]) for row in gate[f"{collective}_bfloat16_graph"]
                if row[1] == "out_of_place" and 64 <= row[0] <= most_bytes]
        plot(axes, nccl, "#8c8c8c", "x", "NCCL")
        for when, label, colour, marker in (("before", "Strait before", "#e69f00", "v"), ("now", "Strait", "#0072b2", "o")):
            points = [(row[0], row[1]) for row in results["nvlink"][collective][when] if row[0] <= most_bytes]
            plot(axes, points, colour, marker, label)
        prepare(axes, collective, [1 << shift for shift in (6, 10, 14, 18)], of_ratios=False)
        axes.set_ylim(0, 15)
    grid[0].set_ylabel("microseconds, CUDA graphs", fontsize=9)
    save(figure, grid[0].get_legend_handles_labels(), 3, output)


def draw_hosts(output: pathlib.Path) -> None:
    """Processes of one machine that pass for two hosts."""
    figure, grid = pyplot.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for axes, title, name in zip(grid, ("a GPU each", "two GPUs each"), ("hosts_tcp_2xh200", "hosts_tcp_4xh200")):
        for collective, times in read(name)["launched one by one"].items():
            points = [(int(size), places["out_of_place"][1] / places["out_of_place"][0]) for size, places in times.items()]
            plot(axes, points, *STYLES[collective], collective)
        prepare(axes, f"Two hosts, {title}: H200, TCP on loopback, bfloat16", [1 << shift for shift in range(10, 29, 4)])
    grid[0].set_ylabel("NCCL's time / Strait's", fontsize=9)
    save(figure, grid[0].get_legend_handles_labels(), 5, output, 0.87)


def draw_overlap(output: pathlib.Path) -> None:
    points = collections.defaultdict(list)
    for run in read("overlap_2xh100")["runs"]:
        if "blocks" in run or run["library"].startswith("NCCL"):
            points[run.get("blocks")].append((run["all_reduce_us"], run["side_by_side_us"] - run["products_us"]))
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for blocks, (label, colour, marker) in BESIDE.items():
        axes.scatter(*zip(*points[blocks]), color=colour, marker=marker, s=28, label=label)
    axes.set_title("all-reduce of 256 MB beside matrix products, 2x H100, each run a point", fontsize=10, loc="left")
    axes.set_xlabel("all-reduce by itself, microseconds", fontsize=9)
    axes.set_ylabel("both take longer than the products by", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.grid(color="#e3e3e3", linewidth=0.8)
    axes.tick_params(labelsize=8)
    save(figure, axes.get_legend_handles_labels(), len(BESIDE), output, 0.95)


def draw_training(output: pathlib.Path) -> None:
    runs = [run for run in read("train_in_turn_2xh100")["runs"] if run["call"] == 1 and run["mode"] == "ddp"]
    alone = [run["max_ctas"]["alone"]["samples_per_s"] for run in runs]
    figure, axes = pyplot.subplots(figsize=(9, 2.6))
    axes.axvspan(min(alone), max(alone), color="#e69f00", alpha=0.25, linewidth=0, label="model alone, no exchange of gradients")
    for label, library, environment, max_ctas in TRAININGS:
        run = next(run for run in runs if run["library"].startswith(library) and run["environment"] == environment)
        bars = axes.barh(label, run["max_ctas"][max_ctas]["samples_per_s"], color=TRAINING_COLOURS[library], height=0.7)
        axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_title("DDP, 304 million parameters, 2x H100, samples/s", fontsize=10, loc="left")
    axes.grid(axis="x", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    save(figure, axes.get_legend_handles_labels(), 1, output)


def all_reduces_of_shared_link() -> dict:
    """{ranks: {way: {bytes: median microseconds}}}"""
    times = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for run in read("shared_link_1xh100")["runs"]:
        way = ("-" in run["environment"]["STRAIT_P2P"], "STRAIT_CPU_REDUCE_BYTES" in run["environment"])
        for row in run["rows"]:
            if row["collective"] == "all-reduce":
                times[run["ranks"]][way][row["bytes"]].append(row["graph_us"])
    return {ranks: {way: {size: statistics.median(all_us) for size, all_us in rows.items()}
                    for way, rows in ways.items()} for ranks, ways in sorted(times.items())}


def draw_shared_link(output: pathlib.Path) -> None:
    times = all_reduces_of_shared_link()
    figure, grid = pyplot.subplots(1, len(times), figsize=(10, 3.4), sharex=True, sharey=True)
    for axes, (ranks, ways) in zip(grid.flat, times.items()):
        for way, (label, colour, marker) in WAYS.items():
            if way in ways:
                plot(axes, [(size, ways[KERNELS][size] / us) for size, us in ways[way].items()], colour, marker, label)
        prepare(axes, f"{ranks} ranks, all-reduce, CUDA graphs", [1 << shift for shift in range(20, 29, 2)])
    grid.flat[0].set_ylabel("kernels' time without islands / time", fontsize=9)
    entries = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels())}
    save(figure, (list(entries.values()), list(entries)), len(WAYS), output)


def smooth(values: list, width: int) -> list:
    """Means of so many neighbours."""
    return [statistics.fmean(values[first:first + width]) for first in range(len(values) - width + 1)]


def draw_wire_loss(output: pathlib.Path) -> None:
    width, last = 15, 150
    result = read("wire_loss_1xh100")
    figure, (whole, end) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for run in result["runs"]:
        label, colour = FORMATS[run["wire"], run["feedback"]]
        losses = smooth(run["losses"], width)
        steps = [step + width // 2 for step in range(len(losses))]
        whole.plot(steps, losses, color=colour, linewidth=1.3, label=label)
        end.plot(steps[-last:], losses[-last:], color=colour, linewidth=1.3)
    for axes, title in ((whole, "training loss, mean of 15 steps"), (end, f"the last {last} of them")):
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("step", fontsize=9)
        axes.grid(color="#e3e3e3", linewidth=0.8)
        axes.tick_params(labelsize=8)
    save(figure, whole.get_legend_handles_labels(), len(FORMATS), output, 0.95)


def main() -> None:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images"
    draw_beside_nccl(folder / "gpu_vs_nccl.svg", FEW_COLLECTIVES)
    draw_beside_nccl(folder / "gpu_vs_nccl_all.svg", tuple(STYLES))
    draw_few_blocks(folder / "few_blocks.svg")
    draw_clusters(folder / "clusters.svg")
    draw_block_ends(folder / "block_ends.svg")
    draw_rounds(folder / "rounds.svg")
    draw_small_calls(folder / "small_calls.svg")
    draw_hosts(folder / "hosts.svg")
    draw_overlap(folder / "overlap.svg")
    draw_training(folder / "training.svg")
    draw_shared_link(folder / "shared_link.svg")
    draw_wire_loss(folder / "wire_loss.svg")


if __name__ == "__main__":
    main()
