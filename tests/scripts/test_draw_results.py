"""scripts/draw_results.py draws every panel and collective of the committed results."""
import pathlib
import subprocess
import sys
import tempfile

PYTHON = "/usr/bin/python3"  # for which apt installs matplotlib
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/draw_results.py"

if subprocess.run([PYTHON, "-c", "import matplotlib"], stderr=subprocess.DEVNULL).returncode != 0:
    print("skipped: python3-matplotlib is not installed")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    output = pathlib.Path(folder) / "drawing.svg"
    subprocess.run([PYTHON, "-B", str(SCRIPT), str(output)], check=True)
    drawing = output.read_text()
for text in ("4x H200, NVLink", "2x H200, NVLink", "4x H200 without P2P", "2x H200 without P2P", "all-reduce",
             "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv", "NCCL's time / Strait's", "64 MB"):
    assert text in drawing, f"the drawing lacks {text}"
