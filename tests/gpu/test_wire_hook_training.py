"""PyTorch's DDP must train with the hook of examples/pytorch on two GPUs, and its gradients must really use the hook.

    test_wire_hook_training.py LIBRARY_FOLDER

train.py itself checks that all ranks end with the same parameters.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)
if torch.cuda.device_count() < 2:
    print("skipped: NCCL gives each rank a GPU of its own, and there are not two")
    sys.exit(77)

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "examples/pytorch/train.py"


def losses(folder, *options):
    path = os.path.join(folder, "losses.json")
    environment = {**os.environ, "LD_LIBRARY_PATH": sys.argv[1] + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(TRAIN),
                    "--json", path, *options], check=True, env=environment, timeout=300)
    return json.loads(pathlib.Path(path).read_text())["losses"]


with tempfile.TemporaryDirectory() as folder:
    exact = losses(folder)
    for wire in ("int4", "int8"):
        encoded = losses(folder, "--wire-hook", wire)
        assert encoded[0] == exact[0], "before the first step there is nothing to carry"
        assert encoded[1:] != exact[1:], f"{wire}: gradients were exact"
        assert encoded[-1] < encoded[0] / 2, f"{wire}: the loss goes from {encoded[0]} to {encoded[-1]} only"
