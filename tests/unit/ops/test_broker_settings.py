"""The local broker's configuration as text, and the line of a log that says why a start failed."""

from pathlib import Path

import pytest

from ops.broker.settings import BrokerSettings, java_command, render_properties, telling_line

SETTINGS = BrokerSettings(19092, controller_port=19093, data_dir=Path("/data"))


def _properties() -> dict[str, str]:
    return dict(line.split("=", 1) for line in render_properties(SETTINGS).splitlines())


def test_every_listener_is_on_loopback() -> None:
    for key in ("listeners", "advertised.listeners"):
        assert _properties()[key] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"


def test_one_broker_keeps_one_copy_of_everything() -> None:
    replicated = {key: value for key, value in _properties().items() if key.endswith(("replication.factor", "isr"))}
    assert len(replicated) >= 5
    assert set(replicated.values()) == {"1"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto.create.topics.enable", "false"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.min.session.timeout.ms", "1000"),
        ("log.dirs", "/data/kafka"),
    ],
)
def test_settings_that_other_parts_rely_on(key: str, value: str) -> None:
    assert _properties()[key] == value


def test_no_topic_default_overrides_the_contract() -> None:
    assert not [
        key for key in _properties() if key.startswith(("log.message.timestamp", "log.retention", "log.cleanup"))
    ]


def test_class_path_does_not_depend_on_the_order_of_the_jars() -> None:
    jars = [Path("/j/b.jar"), Path("/j/a.jar")]
    commands = [
        java_command(Path("/usr/bin/java"), jars=order, main_class="kafka.Kafka", jvm_flags=())
        for order in (jars, jars[::-1])
    ]
    assert commands[0] == commands[1]
    assert "/j/a.jar:/j/b.jar" in commands[0]


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", ""),
        ("INFO fine\nINFO bye\n", "INFO bye"),
        ("ERROR it broke\nINFO shutting down\n", "ERROR it broke"),
        ("ERROR x\nCaused by: a.B: middle\n\tat z\nCaused by: a.C: in use\n\tat z\n", "Caused by: a.C: in use"),
        ("ERROR x\njava.lang.RuntimeException: top\n\tat y\n", "java.lang.RuntimeException: top"),
    ],
)
def test_telling_line_is_the_first_cause(log: str, line: str) -> None:
    assert telling_line(log) == line
