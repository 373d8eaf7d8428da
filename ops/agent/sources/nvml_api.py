"""The part of nvidia-ml-py's module ``pynvml`` that is used here, by its own names: a stand-in can take its place."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

# A device, or a MIG instance, as the driver hands it out.
Handle = Any


class Utilization(Protocol):
    gpu: int


class Memory(Protocol):
    free: int


class Process(Protocol):
    pid: int


class ProcessSample(Protocol):
    pid: int
    smUtil: int  # the library's name
    timeStamp: int  # the library's name


class Nvml(Protocol):
    """What is called of the module. Each call raises ``NVMLError``, whose ``value`` is one of the codes."""

    NVMLError: type[Any]
    NVML_SUCCESS: int
    NVML_ERROR_NOT_SUPPORTED: int
    NVML_ERROR_NO_PERMISSION: int
    NVML_ERROR_NOT_FOUND: int
    NVML_ERROR_FUNCTION_NOT_FOUND: int
    NVML_DEVICE_MIG_ENABLE: int
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...

    def nvmlDeviceGetName(self, handle: Handle) -> str: ...

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Utilization: ...

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> Memory: ...

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Sequence[Process]: ...

    def nvmlDeviceGetProcessUtilization(self, handle: Handle, timeStamp: int) -> Sequence[ProcessSample]: ...

    def nvmlDeviceGetMigMode(self, device: Handle) -> Sequence[int]: ...

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Handle) -> int: ...

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Handle, index: int) -> Handle: ...

    def nvmlDeviceGetTotalEccErrors(self, handle: Handle, errorType: int, counterType: int) -> int: ...

    def nvmlDeviceGetRemappedRows(self, device: Handle) -> tuple[int, int, int, int]: ...


def load_nvml() -> Nvml:
    """The library; raises ModuleNotFoundError where nvidia-ml-py is not installed."""
    return cast(Nvml, import_module("pynvml"))
