"""scripts/draw_results.py draws every panel, collective and way of the committed results."""
import pathlib
import subprocess
import sys
import tempfile

PYTHON = "/usr/bin/python3"  # for which apt installs matplotlib
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/draw_results.py"

if subprocess.run([PYTHON, "-c", "import matplotlib"], stderr=subprocess.DEVNULL).returncode != 0:
    print("skipped: python3-matplotlib is not installed")
    sys.exit(77)
TEXTS = {
    "gpu_vs_nccl.svg": ("4x H200, NVLink", "2x H200, NVLink", "4x H200 without P2P", "2x H200 without P2P", "NCCL without NVLS",
                        "all-reduce", "all-gather", "reduce-scatter", "NCCL's time / Strait's", "64 MB"),
    "gpu_vs_nccl_all.svg": ("all-to-all", "broadcast", "send-recv", "NCCL is faster"),
    "wire_loss.svg": ("exact", "int8", "fp8", "int4", "int4 with error feedback", "training loss", "step"),
    "few_blocks.svg": ("all-reduce of 64 MB", "all-reduce of 256 MB", "Strait, pipes before", "Strait, other kernels", "NCCL",
                       "thread blocks", "microseconds"),
    "clusters.svg": ("all-reduce of 1 GB, 16 thread blocks", "reduce-scatter of 1 GB, 32", "without clusters", "in clusters of four",
                     "sends for microseconds"),
    "block_ends.svg": ("all-gather of 64 MB", "all-reduce of 64 MB", "128 blocks", "in clusters of eight", "have ended, %"),
    "rounds.svg": ("reduce, 4x H100", "broadcast, 4x H100", "32 MB", "2 MB", "rounds", "microseconds"),
    "small_calls.svg": ("all-reduce", "reduce-scatter", "broadcast", "NCCL", "Strait before", "256 KB",
                        "microseconds, CUDA graphs"),
    "training.svg": ("304 million", "no P2P, NCCL", "no P2P, Strait, int8", "NVLink, NCCL", "no exchange of gradients", "658"),
    "overlap.svg": ("beside matrix products", "NCCL", "128 blocks", "16, the default", "by itself"),
    "shared_link.svg": ("6 ranks", "8 ranks", "10 ranks", "islands, CPU threads across", "256 MB"),
}
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([PYTHON, "-B", str(SCRIPT), folder], check=True)
    for name, texts in TEXTS.items():
        drawing = (pathlib.Path(folder) / name).read_text()
        for text in texts:
            assert text in drawing, f"{name} lacks {text}"
