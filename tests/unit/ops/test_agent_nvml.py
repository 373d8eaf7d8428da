"""NVIDIA devices through a stand-in for the library's module, by its own names; it has never run on a device here."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from ops.agent.readings import SourceError
from ops.agent.sources.nvml import NvmlSource
from ops.agent.sources.nvml_api import Nvml, load_nvml

OWNER, OURS = 100, 200
RANKERS = frozenset({OURS})


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


@dataclass
class Util:
    gpu: int


@dataclass
class Mem:
    free: int


@dataclass
class Proc:
    pid: int


@dataclass
class Sample:
    pid: int
    smUtil: int
    timeStamp: int


@dataclass
class Device:
    """``None`` for what the device does not tell."""

    name: str = "NVIDIA H200"
    util: int | None = 0
    free: int = 1 << 30
    pids: list[int] = field(default_factory=list)
    samples: list[Sample] | None = None
    ecc: int | None = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    mig: list["Device | None"] | None = None
    error: int = 0


class FakeNvml:
    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.is_there = True
        self.since_us: list[int] = []
        self.num_shutdowns = 0
        self.num_inits = 0

    def nvmlInit(self) -> None:
        self.num_inits += 1
        self._unless(self.is_there, 9)

    def nvmlShutdown(self) -> None:
        self.num_shutdowns += 1

    def nvmlDeviceGetCount(self) -> int:
        self._unless(self.is_there, 1)
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        device = self.devices[index]
        self._unless(not device.error, device.error)
        return device

    def nvmlDeviceGetName(self, handle: Device) -> str:
        return handle.name

    def nvmlDeviceGetUtilizationRates(self, handle: Device) -> Util:
        if handle.util is None:
            raise NVMLError(3)
        return Util(handle.util)

    def nvmlDeviceGetMemoryInfo(self, handle: Device) -> Mem:
        return Mem(handle.free)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Device) -> list[Proc]:
        return [Proc(pid) for pid in handle.pids]

    def nvmlDeviceGetProcessUtilization(self, handle: Device, timeStamp: int) -> list[Sample]:
        self.since_us.append(timeStamp)
        self._unless(handle.samples is not None, 3)
        found = [sample for sample in handle.samples or [] if sample.timeStamp > timeStamp]
        # As the library does when the driver has none.
        self._unless(bool(found), 0)
        return found

    def nvmlDeviceGetMigMode(self, device: Device) -> list[int]:
        self._unless(device.mig is not None, 3)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Device) -> int:
        return len(device.mig or [])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, index: int) -> Device:
        instance = (device.mig or [])[index]
        if instance is None:
            raise NVMLError(6)
        return instance

    def nvmlDeviceGetTotalEccErrors(self, handle: Device, errorType: int, counterType: int) -> int:
        assert (errorType, counterType) == (1, 0)
        if handle.ecc is None:
            raise NVMLError(3)
        return handle.ecc

    def nvmlDeviceGetRemappedRows(self, device: Device) -> tuple[int, int, int, int]:
        if device.remapped is None:
            raise NVMLError(3)
        return device.remapped

    def _unless(self, well: bool, code: int) -> None:
        if not well:
            raise NVMLError(code)


def shares(device: Device) -> float:
    (reading,) = NvmlSource(FakeNvml(device)).read(RANKERS)
    return reading.owner_units


def test_each_device_is_a_pool_of_its_kind() -> None:
    source = NvmlSource(
        FakeNvml(Device(), Device(name="NVIDIA A100-SXM4-80GB", free=7), Device(name="Tesla T4")),
        kinds={"NVIDIA A100-SXM4-80GB": "a100"},
    )
    readings = source.read(RANKERS)
    assert [(each.pool, each.accelerator, each.units) for each in readings] == [
        ("h200-0", "h200", 1.0),
        ("a100-1", "a100", 1.0),
        ("t4-2", "t4", 1.0),
    ]
    assert readings[1].device_memory_bytes == 7
    assert all(not each.fault and not each.divisible for each in readings)


@pytest.mark.parametrize(
    ("device", "share"),
    [
        # Nobody, or optional work alone.
        (Device(util=0), 0.0),
        (Device(util=90, pids=[OURS]), 0.0),
        # Busy, and nobody to be seen: somebody in another namespace.
        (Device(util=90), 0.9),
        # The owner alone, with and without shares by process.
        (Device(util=70, pids=[OWNER]), 0.7),
        (Device(util=70, pids=[OWNER], samples=[Sample(OWNER, 60, 5)]), 0.6),
        # A model of the owner's that is loaded and waits.
        (Device(util=0, pids=[OWNER], samples=[]), 0.0),
        # Both: by their shares, or, where these are not told, all of it.
        (Device(util=90, pids=[OWNER, OURS], samples=[Sample(OWNER, 10, 5), Sample(OURS, 80, 5)]), 0.1),
        (Device(util=90, pids=[OWNER, OURS]), 1.0),
        (Device(util=90, pids=[OWNER, 101], samples=[Sample(OWNER, 70, 5), Sample(101, 60, 5)]), 1.0),
        # A device that does not tell how busy it is.
        (Device(util=None), 0.0),
        (Device(util=None, pids=[OWNER]), 1.0),
        # Of several samples of a process the busiest counts.
        (Device(util=90, pids=[OWNER], samples=[Sample(OWNER, 70, 5), Sample(OWNER, 10, 6)]), 0.7),
    ],
)
def test_what_the_owner_uses(device: Device, share: float) -> None:
    assert shares(device) == pytest.approx(share)


def test_shares_are_of_the_time_since_the_last_look() -> None:
    device = Device(pids=[OWNER], samples=[Sample(OWNER, 50, 1_000)])
    nvml = FakeNvml(device)
    source = NvmlSource(nvml)
    assert source.read(RANKERS)[0].owner_units == 0.5
    assert source.read(RANKERS)[0].owner_units == 0.0
    assert nvml.since_us == [0, 1_000]


@pytest.mark.parametrize(
    ("device", "fault"),
    [
        (Device(ecc=1), "uncorrected_ecc_errors"),
        (Device(remapped=(0, 0, 1, 0)), "row_remap_pending"),
        (Device(remapped=(0, 0, 1, 1)), "row_remap_failed"),
        (Device(ecc=None, remapped=None), ""),
        (Device(ecc=2, remapped=None), "uncorrected_ecc_errors"),
    ],
)
def test_a_device_with_errors_is_at_fault(device: Device, fault: str) -> None:
    assert NvmlSource(FakeNvml(device)).read(RANKERS)[0].fault == fault


def test_instances_are_pools_and_any_process_of_the_owners_has_all_of_one() -> None:
    instance = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    device = Device(
        name="NVIDIA A100-SXM4-40GB",
        mig=[Device(name=instance, pids=[OURS]), None, Device(name=instance, pids=[OWNER, OURS], free=3)],
    )
    readings = NvmlSource(FakeNvml(Device(), device)).read(RANKERS)
    assert [(each.pool, each.accelerator, each.owner_units) for each in readings[1:]] == [
        ("a100-sxm4-40gb-1-mig0", "a100-sxm4-40gb-mig-1g.5gb", 0.0),
        ("a100-sxm4-40gb-1-mig2", "a100-sxm4-40gb-mig-1g.5gb", 1.0),
    ]
    assert readings[2].device_memory_bytes == 3


def test_a_device_that_is_lost_takes_its_own_pools_along_and_comes_back() -> None:
    nvml = FakeNvml(Device(), Device())
    source = NvmlSource(nvml)
    source.read(RANKERS)
    nvml.devices[1].error = 15
    readings = source.read(RANKERS)
    assert [(each.pool, each.fault) for each in readings] == [("h200-0", ""), ("h200-1", "device: code 15")]
    nvml.devices[1].error = 0
    assert [each.fault for each in source.read(RANKERS)] == ["", ""]


def test_without_a_driver_it_says_so_at_the_start_and_later() -> None:
    nvml = FakeNvml(Device())
    nvml.is_there = False
    with pytest.raises(SourceError, match="code 9"):
        NvmlSource(nvml)
    nvml.is_there = True
    source = NvmlSource(nvml)
    nvml.is_there = False
    with pytest.raises(SourceError, match="code 1"):
        source.read(RANKERS)
    nvml.is_there = True
    assert [each.pool for each in source.read(RANKERS)] == ["h200-0"]
    assert nvml.num_inits == 3
    source.close()
    assert nvml.num_shutdowns == 1


def test_the_library_has_every_name_that_is_used() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    library: Any = load_nvml()
    assert isinstance(library.NVMLError, type)
    names = [*Nvml.__annotations__, *(name for name in vars(Nvml) if name.startswith("nvml"))]
    assert len(names) > 15
    for name in names:
        assert hasattr(library, name), name


@pytest.mark.gpu
def test_the_devices_of_this_host_can_be_read() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    try:
        source = NvmlSource(load_nvml())
    except SourceError as error:
        pytest.skip(str(error))
    readings = source.read(frozenset())
    source.close()
    assert readings
    assert all(each.units == 1.0 and each.device_memory_bytes is not None for each in readings)
