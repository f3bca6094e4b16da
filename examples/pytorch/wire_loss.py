#!/usr/bin/env python3
"""What wire formats do to training: the same small language model on real text, once for each format, on one GPU.

    LD_LIBRARY_PATH=build/release/lib CUDA_DEVICE_MAX_CONNECTIONS=32 python3 examples/pytorch/wire_loss.py --json losses.json

One process is all ranks: each computes the gradients of its own part of the batch, and libstrait.so adds them up as between
GPUs, with the bits of docs/wire-formats.md. The text is the source code of Python's and PyTorch's own modules, byte by byte.
"""
import argparse
import ctypes
import json
import pathlib
import sysconfig

import torch
from torch import nn
from train import Transformer

WAYS = ("off", False), ("int8", False), ("fp8", False), ("int4", False), ("int4", True)  # format, error feedback
WIRE = {"off": 1, "int8": 2, "fp8": 3, "int4": 4}  # straitWireFormat_t
FLOAT32, AVERAGE = 7, 4
LENGTH, BATCH = 256, 12  # of a rank


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    _fields_ = [("size_bytes", ctypes.c_size_t), ("magic", ctypes.c_uint32), ("device", ctypes.c_int),
                ("init_timeout_ms", ctypes.c_int64), ("timeout_ms", ctypes.c_int64), ("max_sms", ctypes.c_int),
                ("wire", ctypes.c_int)]


class CallOptions(ctypes.Structure):
    _fields_ = [("size_bytes", ctypes.c_size_t), ("magic", ctypes.c_uint32), ("wire", ctypes.c_int),
                ("residual", ctypes.c_void_p), ("max_sms", ctypes.c_int), ("algorithm", ctypes.c_char_p)]


class Ranks:
    """Communicators of several ranks, all of this process and on this GPU, each with a stream of its own."""

    def __init__(self, count):
        self.library = ctypes.CDLL("libstrait.so.0")
        self.library.straitGetLastError.restype = ctypes.c_char_p
        unique = UniqueId()
        self.check(self.library.straitGetUniqueId(ctypes.byref(unique)))
        self.comms = [ctypes.c_void_p() for _ in range(count)]
        config = Config(ctypes.sizeof(Config), 0x53747261, 0, 0, 60_000, 0, 0)
        self.check(self.library.straitGroupStart())
        for rank, comm in enumerate(self.comms):
            self.check(self.library.straitCommInitRank(ctypes.byref(comm), count, ctypes.byref(unique), rank,
                                                       ctypes.byref(config)))
        self.check(self.library.straitGroupEnd())
        self.streams = [torch.cuda.Stream() for _ in range(count)]

    def check(self, result):
        if result != 0:
            raise RuntimeError(self.library.straitGetLastError(None).decode())

    def average(self, gradients, wire, residuals):
        """In place, over the ranks."""
        now = torch.cuda.current_stream()
        self.check(self.library.straitGroupStart())
        for rank, (comm, stream, values) in enumerate(zip(self.comms, self.streams, gradients)):
            stream.wait_stream(now)
            options = CallOptions(ctypes.sizeof(CallOptions), 0x53747262, WIRE[wire],
                                  residuals[rank].data_ptr() if residuals else None, 0, None)
            self.check(self.library.straitAllReduceWithOptions(
                ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(values.data_ptr()),
                ctypes.c_size_t(values.numel()), FLOAT32, AVERAGE, comm, ctypes.c_void_p(stream.cuda_stream),
                ctypes.byref(options)))
        self.check(self.library.straitGroupEnd())
        for stream in self.streams:
            now.wait_stream(stream)

    def destroy(self):
        for comm in self.comms:
            self.check(self.library.straitCommDestroy(comm))


def read_text(most_bytes):
    """The training text, and a part that is kept for validation."""
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
