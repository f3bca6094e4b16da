#!/usr/bin/env python3
"""How long matrix products take with an all-reduce beside them, on another stream.

    torchrun --nproc-per-node 4 examples/pytorch/overlap.py --json nccl.json
    STRAIT_MAX_SMS=4 strait run -- torchrun --nproc-per-node 4 examples/pytorch/overlap.py --json strait.json

An all-reduce that takes many SMs, or much of the memory's bandwidth, slows down what it runs beside. Nothing in here knows
of Strait: `strait run` puts its libnccl.so.2 before the one that PyTorch brings along. Times are in microseconds.
"""
import argparse
import json
import os
import statistics

import torch
import torch.distributed as dist


def timed_us(body):
    """Returns how long one run of `body` takes on the current stream."""
    dist.barrier()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    body()
    end.record()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end)


def time_in_turn_us(bodies, turns, device):
    """Returns for each of `bodies`, by name, the median of its times on the slowest rank. The bodies take turns,
    because a GPU that has been busy for a while is slower than one that was idle."""
    times = {name: [] for name in bodies}
    for turn in range(turns + 2):
        for name, body in bodies.items():
            time = timed_us(body)
            if turn >= 2:
                times[name].append(time)
    slowest = torch.tensor([statistics.median(each) for each in times.values()], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return dict(zip(times, slowest.tolist()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8192, help="of the square matrices, bfloat16")
    parser.add_argument("--products", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=256 << 20, help="of the all-reduce, bfloat16")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json")
    parser.add_argument("--note", default="", help="kept in the JSON: which library this was, of which commit")
    arguments = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    a, b = (torch.randn(arguments.size, arguments.size, device=device, dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    gradients = torch.ones(arguments.bytes // 2, device=device, dtype=torch.bfloat16)
    side = torch.cuda.Stream()

    def products():
        for _ in range(arguments.products):
            torch.matmul(a, b, out=c)

    def all_reduce():
        dist.all_reduce(gradients, op=dist.ReduceOp.AVG)

    def side_by_side():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            all_reduce()
        products()
        torch.cuda.current_stream().wait_stream(side)

    bodies = {"products_us": products, "all_reduce_us": all_reduce, "side_by_side_us": side_by_side}
    row = time_in_turn_us(bodies, arguments.turns, device)
    # The average of ones must be ones, whatever ran beside the all-reduce.
    assert torch.equal(gradients, torch.ones_like(gradients)), "the all-reduce is wrong"
    if dist.get_rank() == 0:
        shorter = min(row["products_us"], row["all_reduce_us"])
        row["hidden_share"] = (row["products_us"] + row["all_reduce_us"] - row["side_by_side_us"]) / shorter
        print("   ".join(f"{name} {value:.2f}" for name, value in row.items()))
        if arguments.json:
            setting = {name: value for name, value in os.environ.items() if name.startswith(("STRAIT_", "NCCL_"))}
            about = {
                "program": "overlap.py", "gpu": torch.cuda.get_device_name(), "ranks": dist.get_world_size(),
                "torch": torch.__version__, "cuda": torch.version.cuda, "environment": setting,
                "note": arguments.note,
                "size": arguments.size, "products": arguments.products, "bytes": arguments.bytes,
            }
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(about | row, file, indent=1)
                file.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
