#!/usr/bin/env python3
"""How fast train.py's model trains with so many thread blocks for communication, all in one run.

    torchrun --nproc-per-node 2 examples/pytorch/train_in_turn.py --max-ctas 16 32 --json nccl.json
    STRAIT_P2P=off STRAIT_WIRE=int8 strait run -- torchrun ... train_in_turn.py --max-ctas 0 32 64 --json strait.json

Trains a model for each number of blocks, and with DDP one whose gradients are not traded, which nothing can exceed. The
models take turns of some steps each, because two runs of one program differ by more than many a setting. Each has a
communicator of its own: `max_ctas` of PyTorch's options of a process group, 0: as many blocks as the library thinks best.
With FSDP each layer's parameters are gathered and its gradients scattered by themselves.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from train import MODELS, Trainer, join

ALONE = "alone"


def group_of(max_ctas):
    if max_ctas == 0:
        return None
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = max_ctas
    return dist.new_group(pg_options=options)


def trainer_of(name, arguments, device):
    group = None if name == ALONE else group_of(int(name))

    def wrap(module):
        if arguments.mode == "fsdp":
            return FullyShardedDataParallel(module, process_group=group,
                                            auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}))
        return DistributedDataParallel(module, device_ids=[device.index], process_group=group)

    return Trainer(arguments.model, device, wrap, alone=name == ALONE)


def seconds_of(trainer, steps):
    """Returns the time of the slowest rank."""
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    torch.cuda.synchronize()
    seconds = torch.tensor(time.perf_counter() - began, device=trainer.device)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="300m")
    parser.add_argument("--mode", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--max-ctas", type=int, nargs="+", default=[0], metavar="BLOCKS")
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--turns", type=int, default=7, help="counted ones; one comes before them")
    parser.add_argument("--json", help="where rank 0 writes the times")
    arguments = parser.parse_args()
    device = join()
    names = [*map(str, arguments.max_ctas), *([ALONE] if arguments.mode == "ddp" else [])]
    trainers = {name: trainer_of(name, arguments, device) for name in names}
    times = {name: [] for name in trainers}
    for turn in range(arguments.turns + 1):
        for name, trainer in trainers.items():
            seconds = seconds_of(trainer, arguments.steps)
            if turn > 0:
                times[name].append(seconds / arguments.steps)
    if dist.get_rank() == 0:
        samples = dist.get_world_size() * MODELS[arguments.model]["batch"]
        rows = {name: {"step_ms": 1e3 * statistics.median(each), "samples_per_s": samples / statistics.median(each),
                       "step_ms_of_turns": [1e3 * value for value in each]} for name, each in times.items()}
        for name, row in rows.items():
            print(f"{name:>6}  {row['step_ms']:7.2f} ms a step, {row['samples_per_s']:7.1f} samples/s")
        if arguments.json:
            setting = {name: value for name, value in os.environ.items() if name.startswith(("STRAIT_", "NCCL_"))}
            about = {"program": "train_in_turn.py", "gpu": torch.cuda.get_device_name(), "ranks": dist.get_world_size(),
                     "torch": torch.__version__, "environment": setting, "model": arguments.model,
                     "mode": arguments.mode, "steps": arguments.steps, "turns": arguments.turns, "max_ctas": rows}
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(about, file, indent=1)
                file.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
