"""examples/pytorch: strait_api.py has the structures of strait.h, and wire_hook.py does what DDP asks of a hook.

PyTorch is a stand-in of this file: what is tested is which memory, streams and calls the hook takes in which order. With
libstrait.so as the last argument the calls are real ones, of host ranks that are threads.

    test_wire_hook.py C_COMPILER [LIBSTRAIT]
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import threading
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/pytorch"))
COMPILER = sys.argv[1]
LIBRARY = sys.argv[2] if len(sys.argv) > 2 else None
log = []  # what the stand-ins were asked to do, in order


class Device:
    def __init__(self, text):
        self.type, _, index = str(text).partition(":")
        self.index = int(index) if index else None

    def __str__(self):
        return self.type + ("" if self.index is None else f":{self.index}")


class Tensor:
    def __init__(self, values, dtype="torch.float32"):
        self.memory = (ctypes.c_float * len(values))(*values)
        self.dtype = dtype

    def numel(self):
        return len(self.memory)

    def data_ptr(self):
        return ctypes.addressof(self.memory)


class Stream:
    def __init__(self, index=0, handle=77):
        self.device, self.cuda_stream = Device(f"cuda:{index}"), handle

    def wait_stream(self, other):
        log.append(f"{self.cuda_stream} waits for {other.cuda_stream}")

    def synchronize(self):
        log.append(f"host waits for {self.cuda_stream}")

    def __enter__(self):
        log.append(f"on {self.cuda_stream}")

    def __exit__(self, *_):
        log.append("back")


class Future:
    def __init__(self, devices=None):
        self.devices, self.value = devices, None

    def set_result(self, value):
        self.value = value
        log.append("result")


class Group:
    """Of torch.distributed: ranks that are threads, or one."""

    def __init__(self, ranks=1):
        self.ranks, self.box, self.all_there = ranks, None, threading.Barrier(ranks)
        self.own = threading.local()

    def broadcast(self, values, src, group):
        assert group is self and src == 100  # the group's first rank, as all ranks are numbered
        if self.own.rank == 0:
            self.box = values[0]
        self.all_there.wait()
        values[0] = self.box


def zeros(count, dtype, device):
    log.append(f"zeros({count}, {dtype}) on {device}")
    return Tensor([0.0] * count)


torch = types.ModuleType("torch")
torch.device, torch.float32, torch.zeros = Device, "torch.float32", zeros
torch.cuda = types.SimpleNamespace(Stream=Stream, current_device=lambda: 3, stream=lambda stream: stream,
                                   current_stream=lambda device: Stream(device.index, handle=5))
torch.futures = types.SimpleNamespace(Future=Future)
torch.distributed = types.ModuleType("torch.distributed")
torch.distributed.get_rank = lambda group: group.own.rank
torch.distributed.get_world_size = lambda group: group.ranks
torch.distributed.get_global_rank = lambda group, rank: 100 + rank
torch.distributed.broadcast_object_list = lambda values, src, group: group.broadcast(values, src, group)
torch.distributed.group = types.SimpleNamespace(WORLD=None)
sys.modules["torch"], sys.modules["torch.distributed"] = torch, torch.distributed
import strait_api  # noqa: E402
import wire_hook  # noqa: E402


class FakeLibrary:
    def unique_id(self):
        return b"id"

    def init_rank(self, unique, ranks, rank, device):
        log.append(f"init {unique} {rank} of {ranks} on {device}")
        return "comm"

    def average(self, comm, pointer, count, element_type, wire, residual, stream):
        self.residual = residual
        log.append(f"average {count} {element_type} {wire} on stream {stream}")

    def destroy(self, comm):
        log.append(f"destroy {comm}")


class Bucket:
    """DDP's GradBucket."""

    def __init__(self, index, parameters, is_last=False, dtype="torch.float32"):
        self.values = Tensor([0.0] * sum(each.numel() for each in parameters), dtype)
        self.index_, self.parameters_, self.is_last_ = index, parameters, is_last

    def index(self):
        return self.index_

    def parameters(self):
        return self.parameters_

    def buffer(self):
        return self.values

    def is_last(self):
        return self.is_last_


def make_state(device, **options):
    group = Group()
    group.own.rank = 0
    log.clear()
    return wire_hook.WireState("int4", device, group=group, library=FakeLibrary(), **options)


class Abi(unittest.TestCase):
    def test_structures_and_numbers_are_those_of_the_header(self):
        of_header, of_python = [], []
        for structure, name, initializer in ((strait_api.Config, "straitConfig_t", "STRAIT_CONFIG_INITIALIZER"),
                                             (strait_api.CallOptions, "straitCallOptions_t",
                                              "STRAIT_CALL_OPTIONS_INITIALIZER"),
                                             (strait_api.UniqueId, "straitUniqueId", None)):
            of_header.append(f"sizeof({name})")
            of_python.append(ctypes.sizeof(structure))
            for field, _ in structure._fields_:
                of_header += [f"offsetof({name}, {field})", f"sizeof((({name}*)0)->{field})"]
                of_python += [getattr(structure, field).offset, getattr(structure, field).size]
            if initializer:
                of_header.append(f"(({name}){initializer}).magic")
                of_python.append(structure.MAGIC)
        of_header += [f"straitWire{wire.capitalize()}" for wire in strait_api.WIRES]
        of_python += strait_api.WIRES.values()
        of_header += [f"strait{each.capitalize()}" for each in strait_api.TYPES] + ["straitAvg"]
        of_python += [*strait_api.TYPES.values(), strait_api.AVERAGE]
        program = "#include <stddef.h>\n#include <stdio.h>\n#include <strait/strait.h>\nint main(void) {\n" + "".join(
            f'  printf("%zu\\n", (size_t)({each}));\n' for each in of_header) + "  return 0;\n}\n"
        with tempfile.TemporaryDirectory() as folder:
            source, binary = pathlib.Path(folder, "abi.c"), pathlib.Path(folder, "abi")
            source.write_text(program)
            subprocess.run([COMPILER, f"-I{ROOT}/include", source, "-o", binary], check=True)
            numbers = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual([f"{what}: {number}" for what, number in zip(of_header, numbers)],
                         [f"{what}: {number}" for what, number in zip(of_header, of_python)])
        self.assertEqual((len(numbers), len(of_python)), (len(of_header), len(of_header)))


class Hook(unittest.TestCase):
    def test_runs_on_a_stream_of_its_own_behind_the_backward_pass(self):
        state = make_state("cuda:2")
        bucket = Bucket(0, [Tensor([0.0] * 3)], is_last=True, dtype="torch.bfloat16")
        future = wire_hook.average_in_wire_format(state, bucket)
        state.destroy()
        state.destroy()
        self.assertEqual(log, ["init b'id' 0 of 1 on 2", "77 waits for 5", "on 77", "zeros(3, torch.float32) on cuda:2",
                               "average 3 bfloat16 int4 on stream 77", "result", "back", "host waits for 77", "destroy comm",
                               "host waits for 77"])
        self.assertIs(future.value, bucket.buffer())
        self.assertEqual([each.index for each in future.devices], [2])

    def test_takes_the_current_device_and_host_ranks_have_none(self):
        make_state("cuda")
        self.assertEqual(log, ["init b'id' 0 of 1 on 3"])
        state = make_state("cpu", feedback=False)
        future = wire_hook.average_in_wire_format(state, Bucket(0, [Tensor([0.0] * 3)]))
        self.assertEqual(log, ["init b'id' 0 of 1 on -1", "average 3 float32 int4 on stream None", "result"])
        self.assertIsNone(future.devices)
        self.assertIsNone(state.library.residual)

    def test_refuses_what_has_no_format(self):
        with self.assertRaisesRegex(ValueError, "int2"):
            wire_hook.WireState("int2", "cpu", library=FakeLibrary())
        state = make_state("cpu")
        with self.assertRaisesRegex(TypeError, "float64"):
            wire_hook.average_in_wire_format(state, Bucket(0, [Tensor([0.0])], dtype="torch.float64"))
        self.assertEqual(state.residuals, {})


class Residuals(unittest.TestCase):
    def setUp(self):
        self.state = make_state("cpu")
        self.parameters = [Tensor([0.0] * 2), Tensor([0.0] * 2), Tensor([0.0] * 3)]

    def run_bucket(self, index, parameters, is_last=False):
        wire_hook.average_in_wire_format(self.state, Bucket(index, parameters, is_last))
        return self.state.library.residual

    def test_are_kept_for_each_bucket_from_step_to_step(self):
        a, b, c = self.parameters
        first, second = self.run_bucket(0, [a]), self.run_bucket(1, [b, c], True)
        self.assertNotEqual(first, second)
        self.assertEqual((self.run_bucket(0, [a]), self.run_bucket(1, [b, c], True)), (first, second))

    def test_begin_anew_where_a_bucket_has_other_gradients_of_the_same_size(self):
        a, b, _ = self.parameters
        first = self.run_bucket(0, [a, b], True)
        self.state.residuals[0][1].memory[0] = 1.0
        self.assertNotEqual(self.run_bucket(0, [b, a], True), first)
        self.assertEqual(list(self.state.residuals[0][1].memory), [0.0] * 4)

    def test_of_buckets_that_are_gone_are_let_go_of(self):
        a, b, c = self.parameters
        for index, parameters in enumerate(([a], [b], [c])):
            self.run_bucket(index, parameters, index == 2)
        self.run_bucket(0, [a, b])
        self.run_bucket(1, [c], True)
        self.assertEqual(sorted(self.state.residuals), [0, 1])


@unittest.skipUnless(LIBRARY, "no libstrait.so")
class RealCalls(unittest.TestCase):
    """What a rank contributes is the gradient and what was lost before, less what is lost now; and the mean of these is
    the result, but for its own rounding to int4: half of a seventh of the block's largest magnitude."""
    RANKS, COUNT, STEPS = 3, 100, 4

    def run_rank(self, group, rank, steps):
        group.own.rank = rank
        state = wire_hook.WireState("int4", "cpu", group=group, library=strait_api.Library(LIBRARY))
        parameters = [Tensor([0.0] * self.COUNT)]
        lost = [0.0] * self.COUNT
        for step in range(self.STEPS):
            bucket = Bucket(0, parameters, is_last=True)
            gradient = [((17 * i + 29 * rank + 11 * step) % 101 - 40) / 64 for i in range(self.COUNT)]
            bucket.values.memory[:] = gradient
            wire_hook.average_in_wire_format(state, bucket)
            loses = list(state.residuals[0][1].memory)
            steps[step][rank] = (list(bucket.values.memory), [g + a - b for g, a, b in zip(gradient, lost, loses)], loses)
            lost = loses
        state.destroy()

    def test_averages_with_error_feedback(self):
        group = Group(self.RANKS)
        steps = [[None] * self.RANKS for _ in range(self.STEPS)]
        threads = [threading.Thread(target=self.run_rank, args=(group, rank, steps)) for rank in range(self.RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for ranks in steps:
            results, sent, lost = zip(*ranks)
            self.assertEqual(len({tuple(each) for each in results}), 1)
            self.assertTrue(all(any(each) for each in lost))
            means = [sum(each) / self.RANKS for each in zip(*sent)]
            bound = max(map(abs, means)) / 7 * (0.5 + 2**-15) + 1e-5
            for result, mean in zip(results[0], means):
                self.assertLessEqual(abs(result - mean), bound)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
