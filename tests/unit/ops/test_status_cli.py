"""The verb: one look or many, and what it does when the broker goes away; the broker itself is played."""

import json
import socket
from collections.abc import Callable
from typing import Any

import click
import pytest

from ops.cli import main
from ops.errors import UserError
from ops.status import cli
from ops.status.model import Status
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import BOOTSTRAP_ENV
from tests.unit.ops.status_makers import status_of

Say = Callable[..., list[str]]


class PlayedLooker:
    """Gives one look after the other; an error is raised."""

    looks: tuple[Status | BrokerError, ...] = ()

    def __init__(self, *_: object) -> None:
        self._looks = iter(self.looks)

    def __enter__(self) -> "PlayedLooker":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def look(self) -> Status:
        seen = next(self._looks, None)
        if seen is None:
            raise KeyboardInterrupt
        if isinstance(seen, BrokerError):
            raise seen
        return seen


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs `intertidal status` over some looks until a person interrupts it; returns the lines of stdout."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(cli, "Looker", PlayedLooker)
    monkeypatch.setattr(cli, "broker_config", lambda _verb, *, only_looks: {} if only_looks else None)
    pauses: list[float] = []
    monkeypatch.setattr("ops.status.cli.time.sleep", pauses.append)

    def run(*arguments: str, looks: tuple[Any, ...]) -> list[str]:
        monkeypatch.setattr(PlayedLooker, "looks", looks)
        try:
            cli.status.main(list(arguments), standalone_mode=False)
        except click.Abort:
            assert pauses
        return capsys.readouterr().out.splitlines()

    return run


def test_one_look_is_the_whole_status(say: Say) -> None:
    lines = say(looks=(status_of(),))
    assert lines[1].startswith("ok: ")
    assert any(line.startswith("why ") for line in lines)
    assert any(line.startswith("ingest ") for line in lines)


def test_json_is_one_document(say: Say) -> None:
    (line,) = say("--json", looks=(status_of(),))
    assert json.loads(line)["verdict"]["state"] == "ok"


def test_watching_in_a_pipe_is_a_line_a_look_and_outlives_the_broker(say: Say) -> None:
    lines = say("--watch", looks=(status_of(), BrokerError("no answer from the broker"), status_of([])))
    assert lines[0].split()[1:3] == ["ok", "us-east"]
    assert lines[1] == "no answer from the broker"
    assert lines[2].split()[1] == "waiting"
    assert len(lines) == 3


def test_watching_in_json_is_a_document_a_line(say: Say) -> None:
    lines = say("--watch", "--json", looks=(status_of(), BrokerError("away"), status_of([])))
    assert [json.loads(line)["verdict"]["state"] for line in lines] == ["ok", "waiting"]


def test_what_is_missing_at_the_first_look_is_an_error_of_the_users(say: Say) -> None:
    with pytest.raises(UserError, match="no topic"):
        say("--watch", looks=(BrokerError("the broker has no topic x"),))


def test_partitions_show_watermarks(say: Say) -> None:
    lines = say("--partitions", looks=(status_of(),))
    assert any(line.split()[:4] == ["[0]", "10", "of", "0..10"] and "to 00:03:20.000" in line for line in lines)


def test_no_broker_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as held:
        # Bound and not listening: nobody answers there, and nobody else can take it.
        held.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv(BOOTSTRAP_ENV, nobody)
        assert main(["status"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert nobody in said.err


@pytest.mark.parametrize("arguments", [("--every", "x"), ("--every", "0"), ("surprise",), ("--wach",)])
def test_wrong_use_is_one_line_and_exit_code_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *arguments]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("intertidal status: ")


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--help"]) == 0
    assert "intertidal status --json" in capsys.readouterr().out.split("Example:")[1]
