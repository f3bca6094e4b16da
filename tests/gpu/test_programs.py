"""The PyTorch and JAX programs in examples/ must train with the drop-in as with the NCCL that is bundled with them.

    test_programs.py STRAIT LIBNCCL pytorch|jax

The programs themselves check the results of collectives. This checks that Strait serves them, that losses are within
1e-3 of the value of NCCL's, and that two runs with Strait have the same bits.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

STRAIT, LIBRARY, FRAMEWORK = sys.argv[1:]
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
PROGRAMS = {
    "pytorch": {mode: [*TORCHRUN, str(EXAMPLES / "pytorch/train.py"), "--mode", mode] for mode in ("ddp", "fsdp")},
    "jax": {f"{count} process(es)": [str(EXAMPLES / "jax/train.py"), "--processes", str(count)] for count in (1, 2)},
}


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def count_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return len(listed.splitlines())


def losses(program, folder, serves):
    """Runs the program and returns its losses. `serves`: with Strait, otherwise with NCCL."""
    path = pathlib.Path(folder, "losses.json")
    command = [sys.executable, *program, "--json", str(path)]
    if serves:
        command = [STRAIT, "run", "--library", LIBRARY, "--", *command]
    # XLA chooses kernels by measured time, unless it is told that each run must give the same bits.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1", "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
    ran = subprocess.run(command, env=environment, timeout=300, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ("is served by Strait" in ran.stderr) == serves, ran.stderr
    return json.loads(path.read_text())["losses"]


if count_gpus() < 2:
    skip("NCCL gives each rank a GPU of its own, and there are not two")
if importlib.util.find_spec({"pytorch": "torch"}.get(FRAMEWORK, FRAMEWORK)) is None:
    skip(FRAMEWORK + " is not installed")
for name, program in PROGRAMS[FRAMEWORK].items():
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours, again = (losses(program, folder, serves) for serves in (False, True, True))
    apart = max(abs(one - other) / abs(other) for one, other in zip(ours, theirs, strict=True))
    assert apart <= 1e-3, f"{name}: losses are {apart} of their value from NCCL's"
    assert ours == again, f"{name}: two runs on Strait differ"
    print(f"{name}: {len(ours)} losses, at most {apart:.1e} of their value from NCCL's")
