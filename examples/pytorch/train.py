#!/usr/bin/env python3
"""Trains a small transformer with PyTorch's own DDP or FSDP, and writes the losses.

    torchrun --nproc-per-node 4 examples/pytorch/train.py --json nccl.json
    strait run -- torchrun --nproc-per-node 4 examples/pytorch/train.py --json strait.json
    examples/pytorch/train.py --compare nccl.json strait.json

A model of 300 million parameters, on machines without P2P, with and without fewer bytes on the wire:

    NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 4 examples/pytorch/train.py --model 300m --json nccl.json
    STRAIT_P2P=off strait run -- torchrun --nproc-per-node 4 examples/pytorch/train.py --model 300m --json exact.json
    STRAIT_P2P=off STRAIT_WIRE=int8 strait run -- torchrun ... --model 300m --json int8.json
    torchrun ... --model 300m --alone    # what would be without any communication

`strait run` puts Strait's libnccl.so.2 before the one that PyTorch brings along; nothing in here knows of it. Only --wire-hook
calls Strait itself: DDP's gradients then travel in that format, with error feedback, and all else as without it.

    LD_LIBRARY_PATH=build/release/lib strait run -- torchrun ... --wire-hook int4 --json int4.json
"""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from wire_hook import WireState, average_in_wire_format


# Wide rather than deep: the host must launch kernels faster than the GPUs run them, or only launches are measured.
MODELS = {
    "small": {"width": 256, "depth": 4, "heads": 4, "batch": 16, "length": 64, "lr": 3e-4},
    "300m": {"width": 2048, "depth": 6, "heads": 16, "batch": 8, "length": 256, "lr": 1e-4},
}

WARMUP_STEPS = 10  # not counted as samples per second


class Transformer(nn.Module):
    def __init__(self, width, depth, heads, words=512):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, words)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        return self.head(self.layers(self.embedding(words), mask=mask, is_causal=True))


class Trainer:
    """A model on this rank's GPU, which is trained on this rank's words. All trainers begin with the same
    parameters and see the same words.

    `wrap(module)` returns the module that exchanges gradients. With `alone` gradients are not exchanged."""

    def __init__(self, name, device, wrap, alone=False):
        self.sizes = MODELS[name]
        self.device = device
        torch.manual_seed(1)
        module = Transformer(self.sizes["width"], self.sizes["depth"], self.sizes["heads"]).to(device)
        self.parameters = sum(each.numel() for each in module.parameters())
        self.precision = torch.autocast("cuda", dtype=torch.bfloat16, enabled=name != "small")
        self.model = wrap(module)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.sizes["lr"], fused=True)
        self.steps_alone = self.model.no_sync if alone else contextlib.nullcontext
        self.generator = torch.Generator(device=device).manual_seed(1000 + dist.get_rank())

    def step(self):
        """Trains one step and returns the loss for this rank's words."""
        # Each word is the previous one plus one, which the model can learn.
        first = torch.randint(0, 512, (self.sizes["batch"], 1), generator=self.generator, device=self.device)
        words = (first + torch.arange(self.sizes["length"] + 1, device=self.device)) % 512
        self.optimizer.zero_grad(set_to_none=True)
        with self.steps_alone():
            with self.precision:
                logits = self.model(words[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
            loss.backward()
        self.optimizer.step()
        return loss.detach()


def join():
    """Makes the process group and returns this rank's GPU."""
    # More ranks than GPUs are an error with NCCL. Strait allows them for trials with STRAIT_SHARE_GPUS=1.
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.use_deterministic_algorithms(True, warn_only=True)
    return device


def train(arguments):
    device = join()
    rank = dist.get_rank()

    def wrap(module):
        if arguments.mode == "fsdp":
            return FullyShardedDataParallel(module)
        return DistributedDataParallel(module, device_ids=[device.index])

    trainer = Trainer(arguments.model, device, wrap, arguments.alone)
    if arguments.wire_hook:
        hook_state = WireState(arguments.wire_hook, device)
        trainer.model.register_comm_hook(hook_state, average_in_wire_format)
    losses, began = [], time.perf_counter()
    for step in range(arguments.steps):
        if step == WARMUP_STEPS:
            torch.cuda.synchronize()
            began_warm = time.perf_counter()
        mean = trainer.step().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean)
    losses = [value.item() for value in losses]
    seconds = time.perf_counter() - began
    trained = dist.get_world_size() * trainer.sizes["batch"] * (arguments.steps - WARMUP_STEPS)
    samples_per_s = trained / (time.perf_counter() - began_warm)
    if arguments.mode == "ddp" and not arguments.alone:
        check_same(trainer.model)
    check_calls(rank, device)
    if arguments.wire_hook:
        hook_state.destroy()
    if rank == 0:
        parameters = trainer.parameters
        print(f"{arguments.mode}, {parameters / 1e6:.0f} M parameters: {arguments.steps} steps in {seconds:.1f} s, "
              f"{samples_per_s:.1f} samples/s, loss {losses[0]:.4f} -> {losses[-1]:.4f}, "
              f"NCCL interface {torch.cuda.nccl.version()}")
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump({"mode": arguments.mode, "parameters": parameters, "seconds": seconds,
                           "samples_per_s": samples_per_s, "losses": losses}, file)
    dist.destroy_process_group()


def check_same(model):
    """Checks that all ranks of DDP end with the same bits, in whatever format gradients were sent."""
    own = torch.stack([each.detach().view(torch.int32).sum(dtype=torch.int64) for each in model.parameters()])
    least, most = own.clone(), own.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    assert torch.equal(least, most), "the ranks' parameters are not the same"


def check_calls(rank, device):
    """Makes the calls that training does not make, and checks their results."""
    ranks = dist.get_world_size()
    mine = torch.arange(ranks * 3, device=device) + 100 * rank
    received = torch.empty_like(mine)
    dist.all_to_all_single(received, mine)
    expected = torch.cat([torch.arange(3) + 3 * rank + 100 * peer for peer in range(ranks)])
    assert torch.equal(received.cpu(), expected), "all_to_all_single"

    sent, got = torch.full((1000,), float(rank), device=device), torch.empty(1000, device=device)
    operations = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    assert torch.equal(got.cpu(), torch.full((1000,), float((rank - 1) % ranks))), "batch_isend_irecv"

    groups = [dist.new_group([r for r in range(ranks) if r % 2 == parity]) for parity in (0, 1)]
    value = torch.tensor([float(rank)], device=device)
    dist.all_reduce(value, group=groups[rank % 2])
    assert value.item() == sum(r for r in range(ranks) if r % 2 == rank % 2), "a sub-group"

    value = torch.ones(4096, device=device)
    dist.all_reduce(value)  # before the capture, so that the set-up of the first call is not captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(value)
    value.fill_(1.0)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.all(value == float(ranks * ranks)).item(), "a CUDA graph"


def compare(paths, tolerance):
    first, second = (json.load(open(path, encoding="utf-8"))["losses"] for path in paths)
    worst = max(abs(a - b) / abs(a) for a, b in zip(first, second, strict=True))
    print(f"{len(first)} steps; largest relative difference of the loss {worst:.2e}; "
          f"{'the same bits' if first == second else 'not the same bits'}")
    return 0 if worst <= tolerance else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="small")
    parser.add_argument("--mode", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--wire-hook", choices=["int8", "fp8", "int4"],
                        help="gradients travel in this format, with error feedback, by Strait's library (--mode ddp)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--alone", action="store_true",
                        help="ranks trade no gradients: the speed that nothing can exceed")
    parser.add_argument("--json", help="where rank 0 writes the losses")
    parser.add_argument("--compare", nargs=2, metavar="FILE", help="compares two such files instead of training")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    if arguments.steps <= WARMUP_STEPS:
        parser.error(f"--steps must be more than {WARMUP_STEPS}")
    if arguments.wire_hook and (arguments.mode != "ddp" or arguments.alone):
        parser.error("--wire-hook is for --mode ddp, and not --alone")
    if arguments.compare:
        sys.exit(compare(arguments.compare, arguments.tolerance))
    train(arguments)


if __name__ == "__main__":
    main()
