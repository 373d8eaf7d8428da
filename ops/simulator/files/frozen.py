"""A whole scenario as one file, with what was read from traffic files: how a run hands it to its parts."""

from pathlib import Path

import msgspec

from ops.simulator.files.errors import TrafficFileError
from ops.simulator.scenario_model import Scenario

SUFFIX = ".json"


def write_frozen(scenario: Scenario, path: Path) -> None:
    """Write a scenario; ``read_frozen`` gives an equal one."""
    path.write_bytes(msgspec.json.encode(scenario))


def read_frozen(path: Path) -> Scenario:
    """Read what ``write_frozen`` wrote. Raises TrafficFileError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Scenario)
    except OSError as error:
        raise TrafficFileError(str(path), "", f"cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise TrafficFileError(str(path), "", f"is no frozen scenario: {error}") from None
