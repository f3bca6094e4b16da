"""A communication hook for PyTorch's DDP: gradients are averaged in a wire format, with error feedback.

    state = WireState("int4", device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    model.register_comm_hook(state, average_in_wire_format)
    ...
    state.destroy()

libstrait.so.0 must be found, by LD_LIBRARY_PATH if it is not installed. PyTorch's own process group, of any backend,
gives the ranks the communicator's unique id, and does all other communication. Format and residual are those of
docs/wire-formats.md.
"""
import torch
import torch.distributed as dist

import strait_api


class WireState:
    """A rank's communicator, and the residuals: what the format lost of its gradients. To be made by all ranks of
    `group` (default: all ranks) together."""

    def __init__(self, wire, device, group=None, feedback=True, library=None):
        if wire not in ("int8", "fp8", "int4"):
            raise ValueError(f"{wire!r} is no wire format: int8, fp8 or int4")
        self.wire, self.device, self.feedback = wire, torch.device(device), feedback
        self.stream, index = None, -1
        if self.device.type == "cuda":
            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            self.stream = torch.cuda.Stream(index)
        self.residuals = {}  # by index of the bucket: its contents, and one float per element
        self.library = library or strait_api.Library()
        group = group or dist.group.WORLD
        ids = [self.library.unique_id() if dist.get_rank(group) == 0 else None]
        dist.broadcast_object_list(ids, src=dist.get_global_rank(group, 0), group=group)
        self.comm = self.library.init_rank(ids[0], dist.get_world_size(group), dist.get_rank(group), index)

    def residual_of(self, bucket):
        """Returns the residual of a bucket; zeros if its contents are new. DDP moves parameters to other buckets
        after the first step, and what the format lost of one gradient must not be added to another, even if the
        bucket's index and size are the same."""
        contents = tuple((each.data_ptr(), each.numel()) for each in bucket.parameters())
        known, residual = self.residuals.get(bucket.index(), (None, None))
        if known != contents:
            residual = torch.zeros(bucket.buffer().numel(), dtype=torch.float32, device=self.device)
            self.residuals[bucket.index()] = (contents, residual)
        if bucket.is_last():  # drop residuals of an earlier division into more buckets
            self.residuals = {index: kept for index, kept in self.residuals.items() if index <= bucket.index()}
        return residual

    def average(self, bucket, stream):
        values = bucket.buffer()
        element_type = str(values.dtype).removeprefix("torch.")
        if element_type not in strait_api.TYPES:
            raise TypeError(f"gradients of {element_type} have no wire format, only {', '.join(strait_api.TYPES)}")
        residual = self.residual_of(bucket).data_ptr() if self.feedback else None
        self.library.average(self.comm, values.data_ptr(), values.numel(), element_type, self.wire, residual, stream)

    def destroy(self):
        """Destroys the communicator. To be called after the last step."""
        if self.stream is not None:
            self.stream.synchronize()
        comm, self.comm = self.comm, None
        if comm is not None:
            self.library.destroy(comm)


def average_in_wire_format(state, bucket):
    """Averages a bucket's gradients; for DistributedDataParallel.register_comm_hook()."""
    if state.stream is None:
        state.average(bucket, None)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future
    # On a separate stream, so that the backward pass continues. The bucket is full when the stream of the backward pass
    # reaches this point. Waiting for the future makes the waiter's stream wait for this stream up to set_result().
    state.stream.wait_stream(torch.cuda.current_stream(state.stream.device))
    with torch.cuda.stream(state.stream):
        state.average(bucket, state.stream.cuda_stream)
        future = torch.futures.Future(devices=[state.stream.device])
        future.set_result(bucket.buffer())
    return future
