"""Memory of accelerators: giving it back, bounding it, and knowing that it ran out."""

import torch

from ranking.models.devices import device_named

# What PyTorch says where the host's memory ran out: it has no type of its own for that.
_HOST_MEMORY = "DefaultCPUAllocator"


def is_out_of_memory(error: Exception) -> bool:
    """Whether a model failed because the memory of its device, or the host's, ran out."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _HOST_MEMORY in str(error)


def release_memory() -> None:
    """Give back what is not held by any tensor; it is free when this returns.

    What stays is what the process needs to run again: weights, and the context of the device.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def bound_memory(device: str, share: float) -> None:
    """Take no more than that share of an accelerator's memory: beyond it a call fails as if the memory had run out.

    Raises: ValueError on a device that is not there.
    """
    named = device_named(device)
    if named.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(share, named)
