"""What all tests share: markers by folder, one Hypothesis profile, one broker for the whole session."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples everywhere and at every run: a failure is then never a matter of luck.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


def _end(*_: object) -> None:
    pytest.exit("ended by SIGTERM", returncode=128 + signal.SIGTERM)


# A run that is told to end takes its fixtures down, and so leaves no broker behind.
signal.signal(signal.SIGTERM, _end)

_MARKED_FOLDERS = ("broker", "chaos", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test by the folder it lies in."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        if folder in _MARKED_FOLDERS:
            item.add_marker(folder)


@pytest.fixture(scope="session")
def java_and_jars() -> None:
    """Skips where no local broker can be had: no Java, or no Maven and no jars fetched before."""
    from ops.broker.installation import fetched_jars
    from ops.broker.prerequisites import BrokerError, find_java, find_maven

    try:
        find_java()
        if not fetched_jars():
            find_maven()
    except BrokerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    """Bootstrap of one broker for the whole session: KAFKA_BOOTSTRAP, or a local one."""
    if bootstrap := os.environ.get("KAFKA_BOOTSTRAP"):
        yield bootstrap
        return
    request.getfixturevalue("java_and_jars")
    from ops.broker.local import LocalBroker

    with LocalBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics and groups of one test, so that tests on one broker do not meet."""
    return f"t-{uuid.uuid4().hex[:8]}."
