"""The PyTorch and JAX programs in examples/ must train with the drop-in as with the NCCL that is bundled with them.

    test_programs.py STRAIT LIBNCCL pytorch|jax

The programs themselves check the results of collectives. This checks that Strait serves them, that losses are within
1e-3 of the value of NCCL's, and that two runs with Strait have the same bits. On a machine with one GPU, two ranks
share it. NCCL allows that only to ranks on different hosts: PyTorch's are made to look so, but JAX's cannot, so that
its losses are compared only between the two runs with Strait.
"""
import functools
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

STRAIT, LIBRARY, FRAMEWORK = sys.argv[1:]
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ON_HOSTS_OF_THEIR_OWN = ["--no-python", "sh", "-c", 'NCCL_HOSTID=$RANK exec "$0" "$@"', sys.executable]


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def count_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return len(listed.splitlines())


def pytorch(mode, on_hosts_of_their_own):
    launcher = TORCHRUN + (ON_HOSTS_OF_THEIR_OWN if on_hosts_of_their_own else [])
    return [*launcher, str(EXAMPLES / "pytorch/train.py"), "--mode", mode]


def jax(processes, _):
    return [sys.executable, str(EXAMPLES / "jax/train.py"), "--processes", str(processes)]


def losses(command, folder, serves):
    """Runs the command and returns its losses. `serves`: with Strait, otherwise with NCCL."""
    path = pathlib.Path(folder, "losses.json")
    command = [*command, "--json", str(path)]
    if serves:
        command = [STRAIT, "run", "--library", LIBRARY, "--", *command]
    # XLA chooses kernels by measured time, unless it is told that each run must give the same bits.
    environment = {**os.environ, "XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
    if GPUS == 1:
        environment["STRAIT_SHARE_GPUS"] = "1"
        # XLA exchanges ragged pieces by a kernel of its own only between different GPUs.
        environment["XLA_FLAGS"] += " --xla_gpu_allow_ragged_all_to_all_nccl_send_recv_fallback=true"
    else:
        environment["CUDA_VISIBLE_DEVICES"] = "0,1"
    ran = subprocess.run(command, env=environment, timeout=300, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ("is served by Strait" in ran.stderr) == serves, ran.stderr
    return json.loads(path.read_text())["losses"]


def compare(name, program, has_peer):
    with tempfile.TemporaryDirectory() as folder:
        theirs = losses(program(GPUS == 1), folder, False) if has_peer else None
        ours, again = (losses(program(False), folder, True) for _ in range(2))
    assert ours == again, f"{name}: two runs on Strait differ"
    print(f"{name}: {len(ours)} losses, the same bits in two runs")
    if theirs:
        apart = max(abs(one - other) / abs(other) for one, other in zip(ours, theirs, strict=True))
        assert apart <= 1e-3, f"{name}: losses are {apart} of their value from NCCL's"
        print(f"{name}: at most {apart:.1e} of their value from NCCL's")


GPUS = count_gpus()
if GPUS == 0:
    skip("there is no GPU")
if importlib.util.find_spec({"pytorch": "torch"}.get(FRAMEWORK, FRAMEWORK)) is None:
    skip(FRAMEWORK + " is not installed")
if FRAMEWORK == "pytorch":
    for mode in ("ddp", "fsdp"):
        compare(mode, functools.partial(pytorch, mode), True)
else:
    for processes in (1, 2) if GPUS > 1 else (2,):
        compare(f"{processes} process(es)", functools.partial(jax, processes), GPUS > 1)
