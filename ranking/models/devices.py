"""The devices that models run on."""

import torch


def device_named(name: str) -> torch.device:
    """The device of that name, such as ``cpu`` or ``cuda:1``. Raises ValueError where there is none."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"unknown device {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: no CUDA device is available")
    return device
