"""A child that must not outlive its supervisor asks the kernel to be killed with it."""

import ctypes
import os
import signal
from typing import Final

_ENV: Final = "INTERTIDAL_PARENT_PID"
_PR_SET_PDEATHSIG: Final = 1


def dies_with_me() -> dict[str, str]:
    """What a supervisor adds to a child's environment."""
    return {_ENV: str(os.getpid())}


def obey_supervisor() -> None:
    """Where a supervisor asked for it, die with it, however it dies; leave at once if it is already gone."""
    supervisor = os.environ.pop(_ENV, "")
    if not supervisor.isdecimal():
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before the kernel was asked.
    if os.getppid() != int(supervisor):
        raise SystemExit(1)
