"""NVIDIA devices through NVML (nvidia-ml-py): one pool a device, or a MIG instance, each with a gate of its own.

What the owner uses of a device, 0 to 1:

    no process but optional work's   nothing of it, or, where optional work is not there either, what the device says:
                                     the process may stand in a namespace that is not seen
    the owner's processes            the sum of their shares, where the driver tells them; else what the device says
                                     while optional work is not on it, and all of it while it is

A model of the owner's that is loaded and waits has a process and uses nothing: its memory is not free, and that is all.
Process ids are the host's, so the agent must see the host's processes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ops.agent.readings import Reading, SourceError
from ops.agent.sources.nvml_api import Nvml
from ops.telemetry.logs import get_log

_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9.]+")
_BRANDS: Final = re.compile(r"^(nvidia|tesla|geforce|quadro)[ -]+", re.IGNORECASE)
_PER_CENT: Final = 0.01

_LOG = get_log(__name__)


class NvmlSource:
    """Reads every device at each look; one that is lost or has uncorrected errors is reported at fault.

    ``kinds`` maps a device's name, as the driver gives it, to the kind of accelerator that the pipeline knows.
    """

    name = "nvml"

    def __init__(self, nvml: Nvml, *, every_s: float = 1.0, kinds: Mapping[str, str] | None = None) -> None:
        """Begin; raises SourceError where there is no driver."""
        self.every_s = every_s
        self._nvml = nvml
        self._kinds = kinds or {}
        self._sampled_us: dict[str, int] = {}
        # What was read last of each device, to name its pools when it can no longer be asked.
        self._known: dict[int, list[Reading]] = {}
        self._has_begun = False
        self._problems: dict[int, str] = {}
        self._begin()

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        nvml = self._nvml
        readings: list[Reading] = []
        for index in range(self._begin()):
            try:
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                self._known[index] = self._device(index, device, own_pids)
                readings += self._known[index]
                self._problems.pop(index, None)
            except nvml.NVMLError as error:
                if self._problems.get(index) != str(error):
                    _LOG.warning("a device cannot be read", index=index, error=str(error))
                self._problems[index] = str(error)
                readings += [replace(known, fault=f"device: {error}") for known in self._known.get(index, [])]
        return readings

    def close(self) -> None:
        """Let the driver go."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def _begin(self) -> int:
        """Number of devices; a driver that went away is begun with anew. Raises SourceError where there is none."""
        try:
            if not self._has_begun:
                self._nvml.nvmlInit()
                self._has_begun = True
            return self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self._has_begun = False
            raise SourceError(f"nvml: {error}") from error

    def _device(self, index: int, device: Any, own_pids: frozenset[int]) -> list[Reading]:
        name = self._nvml.nvmlDeviceGetName(device)
        kind = self._kind(name)
        fault = self._fault(device)
        if self._has_mig(device):
            return [
                self._instance(f"{kind}-{index}-mig{number}", instance, own_pids, fault)
                for number, instance in self._instances(device)
            ]
        pool = f"{kind}-{index}"
        return [
            Reading(
                pool=pool,
                accelerator=kind,
                units=1.0,
                owner_units=self._owner_share(pool, device, own_pids),
                device_memory_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(device).free),
                fault=fault,
            )
        ]

    def _instance(self, pool: str, instance: Any, own_pids: frozenset[int], fault: str) -> Reading:
        """A MIG instance: the driver tells its processes and memory, and no utilisation."""
        pids = self._pids(instance)
        return Reading(
            pool=pool,
            accelerator=self._kind(self._nvml.nvmlDeviceGetName(instance)),
            units=1.0,
            owner_units=1.0 if pids - own_pids else 0.0,
            device_memory_bytes=int(self._nvml.nvmlDeviceGetMemoryInfo(instance).free),
            fault=fault,
        )

    def _kind(self, name: str) -> str:
        """``NVIDIA A100-SXM4-80GB`` -> ``a100-sxm4-80gb``, where the configuration knows no better."""
        known = self._kinds.get(name)
        return known or _NOT_IN_A_NAME.sub("-", _BRANDS.sub("", name).lower()).strip("-.") or "gpu"

    def _fault(self, device: Any) -> str:
        """Why nobody should compute on the device; empty where it is sound or keeps no account."""
        nvml = self._nvml
        try:
            _, _, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(device)
            if has_failed or is_pending:
                return "row_remap_failed" if has_failed else "row_remap_pending"
        except nvml.NVMLError as error:
            self._unless_unsupported(error)
        try:
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        except nvml.NVMLError as error:
            self._unless_unsupported(error)
            return ""
        return "uncorrected_ecc_errors" if errors else ""

    def _has_mig(self, device: Any) -> bool:
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(device)
        except self._nvml.NVMLError as error:
            self._unless_unsupported(error)
            return False
        return bool(current == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _instances(self, device: Any) -> list[tuple[int, Any]]:
        found = []
        for number in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
            try:
                found.append((number, self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number)))
            except self._nvml.NVMLError as error:
                # Places of instances that were not made.
                if error.value != self._nvml.NVML_ERROR_NOT_FOUND:
                    raise
        return found

    def _owner_share(self, pool: str, device: Any, own_pids: frozenset[int]) -> float:
        pids = self._pids(device)
        busy = self._busy(device)
        owners, ours = pids - own_pids, pids & own_pids
        shares = self._shares(pool, device)
        if not owners:
            return 0.0 if ours else busy or 0.0
        if shares is not None:
            return min(1.0, sum(share for pid, share in shares.items() if pid not in own_pids))
        return 1.0 if ours or busy is None else busy

    def _busy(self, device: Any) -> float | None:
        """Share of the time in which the device computed; None where it does not tell."""
        try:
            return self._nvml.nvmlDeviceGetUtilizationRates(device).gpu * _PER_CENT
        except self._nvml.NVMLError as error:
            self._unless_unsupported(error)
            return None

    def _pids(self, device: Any) -> frozenset[int]:
        return frozenset(process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(device))

    def _shares(self, pool: str, device: Any) -> dict[int, float] | None:
        """Share of the device that each process used since the last look; None where the driver does not tell."""
        nvml = self._nvml
        since_us = self._sampled_us.setdefault(pool, 0)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device, since_us)
        except nvml.NVMLError as error:
            # No process has used it since; the library raises "success" where the driver has no sample.
            if error.value in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
                return {}
            self._unless_unsupported(error)
            return None
        self._sampled_us[pool] = max((sample.timeStamp for sample in samples), default=since_us)
        shares: dict[int, float] = {}
        for sample in samples:
            shares[sample.pid] = max(shares.get(sample.pid, 0.0), sample.smUtil * _PER_CENT)
        return shares

    def _unless_unsupported(self, error: Any) -> None:
        """Raise again, unless the device or the driver is one that does not tell."""
        if error.value not in (
            self._nvml.NVML_ERROR_NOT_SUPPORTED,
            self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            self._nvml.NVML_ERROR_NO_PERMISSION,
        ):
            raise error
