#!/usr/bin/python3
"""Draws committed results of GPUs beside NCCL (perf/results) as docs/images/gpu_vs_nccl.svg. Needs python3-matplotlib.

  scripts/draw_results.py [OUTPUT.svg]
"""
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "strait", "font.family": "sans-serif"})
from matplotlib import pyplot  # noqa: E402: after the choice of the backend

ROOT = pathlib.Path(__file__).resolve().parent.parent
PANELS = (
    ("4x H200, NVLink", "gpu_vs_nccl_4xh200_bfloat16"),
    ("2x H200, NVLink", "gpu_vs_nccl_2xh200_bfloat16"),
    ("4x H200 without P2P (an earlier version)", "gpu_vs_nccl_staged_4xh200_bfloat16"),
    ("2x H200 without P2P", "gpu_vs_nccl_staged_2xh200_bfloat16"),
)
# Colours of Okabe and Ito, told apart with any colour vision; markers for print.
STYLES = {
    "all-reduce": ("#0072b2", "o"),
    "all-gather": ("#d55e00", "s"),
    "reduce-scatter": ("#009e73", "^"),
    "all-to-all": ("#cc79a7", "D"),
    "broadcast": ("#e69f00", "v"),
    "reduce": ("#56b4e9", "P"),
    "send-recv": ("#000000", "x"),
}
SIZES = [1 << shift for shift in range(10, 31, 4)]


def size_name(size_bytes: int) -> str:
    for unit, shift in (("GB", 30), ("MB", 20), ("KB", 10)):
        if size_bytes >> shift:
            return f"{size_bytes >> shift} {unit}"
    return f"{size_bytes} B"


def draw(axes, title: str, rows: list) -> None:
    for collective, (colour, marker) in STYLES.items():
        points = [(row["bytes"], row["nccl_graph_us"] / row["strait_graph_us"]) for row in rows
                  if row["collective"] == collective]
        if points:
            axes.plot(*zip(*sorted(points)), color=colour, marker=marker, markersize=4, linewidth=1.4, label=collective)
    axes.axhline(1, color="#444444", linewidth=1)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, [size_name(size) for size in SIZES])
    axes.minorticks_off()
    axes.grid(color="#e3e3e3", linewidth=0.8)
    axes.tick_params(labelsize=8)


def main() -> None:
    output = sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/images/gpu_vs_nccl.svg"
    figure, grid = pyplot.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True)
    for axes, (title, name) in zip(grid.flat, PANELS):
        result = json.loads((ROOT / "perf/results" / f"{name}.json").read_text())
        draw(axes, f"{title}, {result['type']}, CUDA graphs", result["rows"])
    for axes in grid[:, 0]:
        axes.set_ylabel("NCCL's time / Strait's", fontsize=9)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="upper center", ncols=len(STYLES), fontsize=9,
                  frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(output, metadata={"Date": None})


if __name__ == "__main__":
    main()
