#!/usr/bin/env python3
"""What wire formats do to training: the same small language model on real text, once for each format, on one GPU.

    LD_LIBRARY_PATH=build/release/lib CUDA_DEVICE_MAX_CONNECTIONS=32 python3 examples/pytorch/wire_loss.py --json losses.json

One process is all ranks: each computes the gradients of its own part of the batch, and libstrait.so adds them up as between
GPUs, with the bits of docs/wire-formats.md. The text is the source code of Python's and PyTorch's own modules, byte by byte.
"""
import argparse
import json
import pathlib
import sysconfig

import strait_api
import torch
from torch import nn
from train import Transformer

WAYS = ("off", False), ("int8", False), ("fp8", False), ("int4", False), ("int4", True)  # format, error feedback
LENGTH, BATCH = 256, 12  # for each rank


class Ranks:
    """Communicators of several ranks, all in this process and on this GPU, each with its own stream."""

    def __init__(self, count):
        self.library = strait_api.Library()
        unique = self.library.unique_id()
        self.library.call("straitGroupStart")
        self.comms = [self.library.init_rank(unique, count, rank, 0, timeout_ms=60_000) for rank in range(count)]
        self.library.call("straitGroupEnd")
        self.streams = [torch.cuda.Stream() for _ in range(count)]

    def average(self, gradients, wire, residuals):
        """Averages the gradients over the ranks, in place."""
        now = torch.cuda.current_stream()
        self.library.call("straitGroupStart")
        for rank, (comm, stream, values) in enumerate(zip(self.comms, self.streams, gradients)):
            stream.wait_stream(now)
            self.library.average(comm, values.data_ptr(), values.numel(), "float32", wire,
                                 residuals[rank].data_ptr() if residuals else None, stream.cuda_stream)
        self.library.call("straitGroupEnd")
        for stream in self.streams:
            now.wait_stream(stream)

    def destroy(self):
        for comm in self.comms:
            self.library.destroy(comm)


def read_text(most_bytes):
    """Returns the training text, and a part that is kept for validation."""
    folders = [pathlib.Path(sysconfig.get_path("stdlib")), pathlib.Path(torch.__file__).parent]
    text = bytearray()
    for path in sorted(path for folder in folders for path in folder.rglob("*.py") if "test" not in str(path)):
        if len(text) >= most_bytes:
            break
        text += path.read_bytes()
    values = torch.frombuffer(text, dtype=torch.uint8).to("cuda")
    return values[:-len(values) // 20], values[-len(values) // 20:]


def sample(text, generator):
    first = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=generator).to("cuda")
    return text[first[:, None] + torch.arange(LENGTH + 1, device="cuda")].long()


def loss_of(model, words):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(words[:, :-1])
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), words[:, 1:].flatten())


def train(ranks, wire, feedback, text, held_back, steps):
    torch.manual_seed(1)
    model = Transformer(width=384, depth=6, heads=6, words=256).to("cuda")
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 50))
    count = sum(each.numel() for each in parameters)
    gradients = [torch.zeros(count, device="cuda") for _ in ranks.comms]
    residuals = [torch.zeros(count, device="cuda") for _ in ranks.comms] if feedback else None
    generators = [torch.Generator().manual_seed(100 + rank) for rank in range(len(ranks.comms))]
    losses = []
    for _ in range(steps):
        of_ranks = []
        for values, generator in zip(gradients, generators):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model, sample(text, generator))
            loss.backward()
            torch.cat([each.grad.flatten() for each in parameters], out=values)
            of_ranks.append(loss.detach())
        ranks.average(gradients, wire, residuals)
        for each, values in zip(parameters, gradients[0].split([each.numel() for each in parameters])):
            each.grad = values.view_as(each)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(torch.stack(of_ranks).mean())
    model.eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        validation = torch.stack([loss_of(model, sample(held_back, generator)) for _ in range(40)]).mean().item()
    name = wire + (" with error feedback" if feedback else "")
    print(f"{name}: loss {losses[0].item():.4f} -> {losses[-1].item():.4f}, of text held back {validation:.4f}", flush=True)
    return {"wire": wire, "feedback": feedback, "parameters": count, "validation_loss": validation,
            "losses": [round(value.item(), 5) for value in losses]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--text-bytes", type=int, default=20_000_000)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    ranks = Ranks(arguments.ranks)
    text, held_back = read_text(arguments.text_bytes)
    runs = []
    for wire, feedback in WAYS:
        runs.append(train(ranks, wire, feedback, text, held_back, arguments.steps))
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(
                {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "ranks": arguments.ranks,
                 "batch": BATCH, "length": LENGTH, "text_bytes": len(text), "runs": runs}))
    ranks.destroy()


if __name__ == "__main__":
    main()
