"""The part of strait.h that the examples use, by ctypes. Without PyTorch: a test compares it with the header."""
import ctypes

WIRES = {"off": 1, "int8": 2, "fp8": 3, "int4": 4}  # straitWireFormat_t
TYPES = {"float16": 6, "float32": 7, "bfloat16": 9}  # straitDataType_t: the types that can have a wire format
AVERAGE = 4  # straitAvg


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    MAGIC = 0x53747261
    _fields_ = [("size_bytes", ctypes.c_size_t), ("magic", ctypes.c_uint32), ("device", ctypes.c_int),
                ("init_timeout_ms", ctypes.c_int64), ("timeout_ms", ctypes.c_int64), ("max_sms", ctypes.c_int),
                ("wire", ctypes.c_int)]


class CallOptions(ctypes.Structure):
    MAGIC = 0x53747262
    _fields_ = [("size_bytes", ctypes.c_size_t), ("magic", ctypes.c_uint32), ("wire", ctypes.c_int),
                ("residual", ctypes.c_void_p), ("max_sms", ctypes.c_int), ("algorithm", ctypes.c_char_p)]


class Library:
    """Strait's library. A call that fails raises RuntimeError with Strait's own message."""

    def __init__(self, path="libstrait.so.0"):
        self.library = ctypes.CDLL(path)
        self.library.straitGetLastError.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(self.library.straitGetLastError(None).decode())

    def unique_id(self):
        unique = UniqueId()
        self.call("straitGetUniqueId", ctypes.byref(unique))
        return bytes(unique)

    def init_rank(self, unique, ranks, rank, device, timeout_ms=0):
        """Returns a communicator; `device` -1: for a host rank. Inside a group it is usable after the group."""
        comm = ctypes.c_void_p()
        config = Config(size_bytes=ctypes.sizeof(Config), magic=Config.MAGIC, device=device, timeout_ms=timeout_ms)
        self.call("straitCommInitRank", ctypes.byref(comm), ranks, ctypes.byref(UniqueId.from_buffer_copy(unique)), rank,
                  ctypes.byref(config))
        return comm

    def average(self, comm, pointer, count, element_type, wire, residual, stream):
        """Averages a buffer over the ranks, in place. `residual`: the address of `count` floats, or None."""
        options = CallOptions(size_bytes=ctypes.sizeof(CallOptions), magic=CallOptions.MAGIC, wire=WIRES[wire],
                              residual=residual)
        self.call("straitAllReduceWithOptions", ctypes.c_void_p(pointer), ctypes.c_void_p(pointer),
                  ctypes.c_size_t(count), TYPES[element_type], AVERAGE, comm, ctypes.c_void_p(stream),
                  ctypes.byref(options))

    def destroy(self, comm):
        self.call("straitCommDestroy", comm)
