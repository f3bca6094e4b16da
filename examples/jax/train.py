#!/usr/bin/env python3
"""Calls JAX's collectives on all GPUs, checks what they give, trains a small network on all of them, and writes the losses.

    python examples/jax/train.py --json nccl.json
    strait run -- python examples/jax/train.py --json strait.json

One process has all GPUs of its machine; with --processes N, this starts so many, each with its share of the GPUs.
`strait run` has Strait serve instead of the NCCL that JAX brings along; nothing in here knows of it.
"""
import argparse
import functools
import json
import os
import socket
import subprocess
import sys
import time

WIDTH, DEPTH, BATCH = 512, 4, 64  # sizes of the network; examples per device
RANK_VARIABLE = "EXAMPLE_RANK"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", help="where the losses go")
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)  # set for the processes that this program starts
    return parser.parse_args()


def start_processes(arguments):
    """Starts this program again as each of the processes. Returns the exit status."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, *sys.argv, "--coordinator", coordinator]
    ranks = [subprocess.Popen(command, env={**os.environ, RANK_VARIABLE: str(rank)})
             for rank in range(arguments.processes)]
    return max(rank.wait() for rank in ranks)


def join_processes(arguments):
    import jax  # reads its settings when it is imported; the caller has set them

    rank = int(os.environ[RANK_VARIABLE])
    devices = int(os.environ.get("EXAMPLE_DEVICES", "0")) or count_gpus()
    each = devices // arguments.processes
    # More processes than GPUs are an error with NCCL. Strait allows them for trials with STRAIT_SHARE_GPUS=1.
    own = range(rank * each, (rank + 1) * each) if each > 0 else [rank % devices]
    jax.distributed.initialize(arguments.coordinator, arguments.processes, rank, local_device_ids=own)


def count_gpus():
    names = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout
    return len(names.splitlines())


def check_collectives(jax, mesh, on_all):
    """Compares the collectives with numpy, on integers, whose sums are the same in any order."""
    import jax.numpy as jnp
    import numpy as np

    lax, size = jax.lax, mesh.size
    shard = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
    spec = jax.sharding.PartitionSpec("gpu")
    whole = np.random.default_rng(1).integers(-1000, 1000, (size, size, 12345)).astype(np.float32)
    rows = on_all(whole)

    def call(function, outputs=spec):
        return jax.jit(shard(lambda row: function(row[0])[None], in_specs=spec, out_specs=outputs))(rows)

    def check(what, given, expected):
        for part in given.addressable_shards:
            assert np.array_equal(np.asarray(part.data), expected[part.index]), f"{what}: wrong on {part.device}"

    everywhere = np.broadcast_to
    check("psum", call(lambda row: lax.psum(row, "gpu")), everywhere(whole.sum(0), whole.shape))
    check("pmax", call(lambda row: lax.pmax(row, "gpu")), everywhere(whole.max(0), whole.shape))
    check("pmin of int8", call(lambda row: lax.pmin((row % 100).astype(jnp.int8), "gpu")),
          everywhere((whole % 100).astype(np.int8).min(0), whole.shape))
    check("all_gather", call(lambda row: lax.all_gather(row, "gpu")), everywhere(whole, (size, *whole.shape)))
    check("psum_scatter", call(lambda row: lax.psum_scatter(row, "gpu")), whole.sum(0))
    check("all_to_all", call(lambda row: lax.all_to_all(row, "gpu", 0, 0)), whole.swapaxes(0, 1))
    pairs = [(rank, (rank + 1) % size) for rank in range(size)]
    check("ppermute", call(lambda row: lax.ppermute(row, "gpu", pairs)), np.roll(whole, 1, 0))
    if jax.default_backend() == "cpu":
        return  # JAX has none of the following on CPUs
    length = whole.shape[-1]
    every, place = jnp.arange(size) * length, jnp.full(size, length)

    def ragged(row):
        there = jnp.full(size, lax.axis_index("gpu") * length)
        return lax.ragged_all_to_all(row.ravel(), jnp.zeros(size * length), every, place, there, place,
                                     axis_name="gpu").reshape(size, length)

    check("ragged_all_to_all", call(ragged), whole.swapaxes(0, 1))
    check("pbroadcast", call(lambda row: lax.pbroadcast(row, ("gpu",), size - 1)), everywhere(whole[-1], whole.shape))


def train(jax, mesh, on_all, steps):
    """Returns the losses, and the steps per second without the first ones."""
    import jax.numpy as jnp
    import numpy as np

    spec, same = jax.sharding.PartitionSpec("gpu"), jax.sharding.PartitionSpec()
    keys = jax.random.split(jax.random.key(1), DEPTH)
    layers = [jax.random.normal(key, (WIDTH, WIDTH)) * (1.5 / WIDTH) ** 0.5 for key in keys]
    random = np.random.default_rng(2)
    inputs = random.standard_normal((mesh.size * BATCH, WIDTH), np.float32)
    wanted = np.sin(3 * inputs)

    def loss_of(layers, inputs, wanted):
        for layer in layers[:-1]:
            inputs = jnp.tanh(inputs @ layer)
        return jnp.mean((inputs @ layers[-1] - wanted) ** 2)

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(same, spec, spec), out_specs=(same, same), check_vma=False)
    def step(layers, inputs, wanted):
        loss, gradients = jax.value_and_grad(loss_of)(layers, inputs, wanted)
        loss, gradients = jax.lax.pmean((loss, gradients), "gpu")
        return [layer - 0.3 * gradient for layer, gradient in zip(layers, gradients)], loss

    inputs, wanted = on_all(inputs), on_all(wanted)
    losses, began = [], 0.0
    for number in range(steps):
        if number == 10:
            jax.block_until_ready(layers)
            began = time.monotonic()
        layers, loss = step(layers, inputs, wanted)
        losses.append(loss)
    jax.block_until_ready(layers)
    seconds = time.monotonic() - began
    return [float(loss) for loss in losses], (steps - 10) / seconds


def main():
    arguments = parse_arguments()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if arguments.processes > 1 and arguments.coordinator is None:
        return start_processes(arguments)
    if arguments.coordinator is not None:
        join_processes(arguments)
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("gpu",))
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("gpu"))

    def on_all(whole):
        return jax.make_array_from_callback(whole.shape, by_rows, lambda index: whole[index])

    check_collectives(jax, mesh, on_all)
    losses, rate = train(jax, mesh, on_all, arguments.steps)
    assert losses[-1] < losses[0] / 2, f"it does not learn: from {losses[0]} to {losses[-1]}"
    if jax.process_index() == 0:
        print(f"JAX {jax.__version__} on {mesh.size} devices of {jax.process_count()} processes: collectives are right, "
              f"loss {losses[0]:.6f} to {losses[-1]:.6f}, {rate:.0f} steps a second")
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump({"jax": jax.__version__, "devices": mesh.size, "processes": jax.process_count(),
                           "losses": losses, "steps_per_s": rate}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
