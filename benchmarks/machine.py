"""What a measurement was made on, as far as it moves the figures."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_PACKAGES = ("numpy", "torch", "fastavro", "msgspec", "confluent-kafka")


def describe() -> dict[str, str]:
    """Cores that this process may use, the processor's model, its load, Python and the packages that do the work."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "load average before, after": load_average(),
        "Python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def load_average() -> str:
    """Processes that wanted a core over the last minute: beyond the cores, figures are those of a busy machine."""
    return f"{os.getloadavg()[0]:.2f}"


def _processor() -> str:
    """The first model name in /proc/cpuinfo; ARM kernels give none there, so the architecture stands in."""
    for line in _CPUINFO.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
