"""An operator's words: what is refused before anything is sent, the record that is sent, and what is in force."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from ops import cli, control_cli, control_orders
from ops.commands import MAX_HOLD_MS, CommandError, command_window, duration_ms, expiry_ms, listening
from ops.holds import CellFacts, holds, line_of
from schemas.dead_letters import RawRecord
from schemas.framing import encode
from schemas.partition import partition_for
from schemas.records import CandidateTarget, CellDeclaration, CellLimits, CellRevision, ControlWindow, OperatorCommand
from streams.control.believe import believed
from streams.control.hold import commanded
from streams.control.processor import apply
from streams.control.state import CellState
from tests.unit.streams import control_makers
from tests.unit.streams.control_makers import WINDOW_MS, capacity_window, latency_window

NOW_MS = 1_700_000_000_000
LIMITS = replace(control_makers.LIMITS, max_coverage=0.4)
DRILL = OperatorCommand(action="freeze", operator="ops", reason="a drill", expires_ms=NOW_MS + 60_000)


def declaration(
    cell: str = "us-east", *, from_window: int = 0, until_window: int | None = None, limits: CellLimits = LIMITS
) -> CellDeclaration:
    return CellDeclaration(
        cell=cell,
        window_ms=WINDOW_MS,
        revisions=[CellRevision(from_window=from_window, limits=limits)],
        until_window=until_window,
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("1h30m", 5_400), ("2d", 172_800), ("1d2h3m4s", 93_784)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration_ms(text) == seconds * 1_000
    assert expiry_ms(duration=text, until=None, now_ms=NOW_MS) == NOW_MS + seconds * 1_000


@pytest.mark.parametrize("text", ["", "30", "m", "30m1h", "-5m", "1.5h", "5 m", "٣m", "9" * 50 + "s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no time like"):
        duration_ms(text)


def test_a_hold_runs_out_at_a_time_with_a_zone() -> None:
    until = datetime.fromtimestamp(NOW_MS / 1_000 + 60, UTC)
    assert expiry_ms(duration=None, until=until.isoformat(), now_ms=NOW_MS) == NOW_MS + 60_000
    assert expiry_ms(duration=None, until="2023-11-14T23:15:00+01:00", now_ms=NOW_MS) == 1_700_000_100_000


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "must run out by itself"),
        ({"duration": "5m", "until": "2030-01-01T00:00:00Z"}, "must run out by itself"),
        ({"duration": "0s"}, "after now"),
        ({"until": "2023-01-01T00:00:00Z"}, "after now"),
        ({"until": "2023-11-14T23:15:00"}, "has no zone"),
        ({"until": "tomorrow"}, "is no ISO 8601 time"),
        ({"duration": "8d"}, "7 days at most"),
    ],
)
def test_a_hold_that_would_not_run_out_or_has_run_out_is_refused(given: dict[str, str], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        expiry_ms(**{"duration": None, "until": None, **given}, now_ms=NOW_MS)
    assert expiry_ms(duration="7d", until=None, now_ms=NOW_MS) == NOW_MS + MAX_HOLD_MS


def test_only_cells_that_have_a_controller_are_spoken_to() -> None:
    index = NOW_MS // WINDOW_MS
    declared = {
        "a": declaration("a"),
        "b": declaration("b", until_window=index + 1),
        "gone": declaration("gone", until_window=index),
    }
    assert [cell.cell for cell in listening(declared, ["b", "a", "b"], now_ms=NOW_MS)] == ["a", "b"]
    with pytest.raises(CommandError, match="cell x is not declared"):
        listening(declared, ["a", "x"], now_ms=NOW_MS)
    with pytest.raises(CommandError, match="cell gone is retired from window"):
        listening(declared, ["gone"], now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"candidate_target": 99}, r"us-east: --candidates 99 is not in \[100, 600\]"),
        ({"candidate_target": 601}, r"--candidates 601 is not in \[100, 600\]"),
        ({"coverage": 0.41}, r"us-east: --coverage 0.41 is not in \[0, 0.4\]"),
    ],
)
def test_what_lies_beyond_the_limits_is_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(CommandError, match=word):
        command_window(declaration(), replace(DRILL, action="override", **changes), now_ms=NOW_MS)


def test_limits_are_those_in_force_and_of_a_cell_to_come_the_first() -> None:
    index = NOW_MS // WINDOW_MS
    wide = replace(LIMITS, max_candidates=900)
    revised = replace(declaration(), revisions=[*declaration().revisions, CellRevision(from_window=index, limits=wide)])
    order = replace(DRILL, action="override", candidate_target=900)
    assert command_window(revised, order, now_ms=NOW_MS).command == order
    with pytest.raises(CommandError):
        command_window(revised, order, now_ms=NOW_MS - WINDOW_MS)
    coming = declaration(from_window=index + 2, limits=wide)
    assert command_window(coming, order, now_ms=NOW_MS).window_index == index


def test_the_record_is_believed_and_obeyed_from_the_next_tick_until_it_runs_out() -> None:
    index = NOW_MS // WINDOW_MS
    order = replace(DRILL, action="override", candidate_target=250, expires_ms=(index + 4) * WINDOW_MS)
    window = command_window(declaration(), order, now_ms=NOW_MS)
    key = b"us-east"
    raw = RawRecord(
        topic="control.windows",
        partition=partition_for(key, 8),
        offset=0,
        timestamp_ms=NOW_MS,
        timestamp_kind="append",
        key=key,
        value=encode(window),
    )
    state, records = apply(CellState(cell="us-east"), believed(raw, num_partitions=8, skew_ms=0))
    assert records == ()
    targets = []
    for tick in range(index, index + 5):
        for closed in (capacity_window(tick), latency_window(tick)):
            state, records = apply(state, closed)
            targets += [record for record in records if isinstance(record, CandidateTarget)]
    held = [target.candidate_target for target in targets if target.reason == "operator"]
    assert held == [250] * 3
    assert "override by ops: a drill" in targets[0].detail
    assert "operator" not in (targets[3].reason, targets[4].reason)


def target_of(reason: str, coverage_reason: str = "", *, candidates: int = 250) -> CandidateTarget:
    state, _ = apply(CellState(cell="us-east"), capacity_window(1))
    _, records = apply(state, latency_window(1))
    target = next(record for record in records if isinstance(record, CandidateTarget))
    return replace(
        target,
        reason=reason,
        coverage_reason=coverage_reason,
        candidate_target=candidates,
        window_end_ms=NOW_MS - WINDOW_MS,
        valid_until_ms=NOW_MS,
    )


FREEZE = DRILL
WIDE = replace(DRILL, action="override", candidate_target=250)
COVERED = replace(DRILL, action="override", coverage=0.2)
BOTH = replace(WIDE, coverage=0.2)


@pytest.mark.parametrize(
    ("command", "target", "applied"),
    [
        (WIDE, target_of("operator", "steady"), True),
        (WIDE, target_of("operator", candidates=249), False),
        (WIDE, target_of("no_capacity", "operator"), False),
        (COVERED, target_of("rising", "operator"), True),
        (COVERED, target_of("operator", "no_capacity"), False),
        (BOTH, target_of("operator", "operator"), True),
        (BOTH, target_of("operator", "blind"), False),
        (FREEZE, target_of("operator", "operator", candidates=7), True),
        (FREEZE, target_of("operator", ""), True),
        (FREEZE, target_of("operator", "blind"), False),
        (FREEZE, target_of("blind", "operator"), False),
    ],
)
def test_a_hold_is_applied_where_the_target_follows_it_in_all_that_it_names(
    command: OperatorCommand, target: CandidateTarget, applied: bool
) -> None:
    (row,) = holds({"us-east": CellFacts(command=command, target=target)}, now_ms=NOW_MS)
    assert row.is_applied is applied


def test_a_target_that_has_run_out_applies_nothing() -> None:
    facts = {"us-east": CellFacts(command=WIDE, target=target_of("operator"))}
    (valid,), (over,) = holds(facts, now_ms=NOW_MS), holds(facts, now_ms=NOW_MS + 1)
    assert (valid.is_applied, over.is_applied) == (True, False)
    assert line_of(valid).endswith("[applied, target 250]")
    assert line_of(over).endswith("[not applied, target expired]")


def test_what_keeps_the_coverage_from_following_is_said() -> None:
    (row,) = holds({"us-east": CellFacts(command=BOTH, target=target_of("operator", "blind"))}, now_ms=NOW_MS)
    assert line_of(row).endswith("[not applied, target 250 (operator, coverage: blind)]")


def test_what_is_in_force_is_the_last_word_that_has_not_run_out() -> None:
    hold = commanded(replace(DRILL, action="override", candidate_target=250))
    newer = replace(DRILL, operator="second", expires_ms=NOW_MS + 90_000)
    facts = {
        "command": CellFacts(snapshot_hold=hold, command=newer),
        "let-go": CellFacts(snapshot_hold=hold, command=replace(DRILL, action="resume")),
        "nothing": CellFacts(),
        "over": CellFacts(command=replace(DRILL, expires_ms=NOW_MS)),
        "snapshot": CellFacts(snapshot_hold=hold, target=target_of("operator")),
        "unheard": CellFacts(snapshot_hold=hold, target=target_of("no_capacity")),
    }
    found = holds(facts, now_ms=NOW_MS)
    assert [(row.cell, row.action, row.operator, row.is_applied) for row in found] == [
        ("command", "freeze", "second", False),
        ("snapshot", "override", "ops", True),
        ("unheard", "override", "ops", False),
    ]
    assert (found[0].left_s, found[1].candidates) == (90.0, 250)
    lines = [line_of(row) for row in found]
    assert "freeze until 2023-11-14T22:14:50+00:00 by second: a drill [no target yet]" in lines[0]
    assert "override 250 candidates until 2023-11-14T22:14:20+00:00 by ops: a drill [applied, target 250]" in lines[1]
    assert "[not applied, target 250 (no_capacity)]" in lines[2]


class Desk:
    """The command line without a broker: what is declared, and what was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[ControlWindow] = []
        self.declared = {name: declaration(name) for name in ("us-east", "us-west")}
        self.declared["gone"] = declaration("gone", until_window=1)
        monkeypatch.setattr(control_orders, "broker_config", lambda verb: {})
        monkeypatch.setattr(control_orders, "declared_cells", lambda config: self.declared)
        monkeypatch.setattr(control_orders, "local_ms", lambda: NOW_MS)
        monkeypatch.setattr(control_orders, "_send", self._send)
        monkeypatch.setenv("USER", "ada")
        monkeypatch.delenv("INTERTIDAL_NAMESPACE", raising=False)

    def _send(self, config: object, windows: list[ControlWindow], *, now_ms: int) -> dict[str, tuple[int, int]]:
        self.sent += windows
        return {window.cell: (partition_for(window.cell.encode(), 8), 41) for window in windows}


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


REASON = ("--reason", "a drill")


def test_one_word_to_every_cell_says_where_it_stands(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["control", "freeze", "--all", *REASON, "--for", "30m"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{cell}: freeze until 2023-11-14T22:43:20+00:00, control.windows[{partition_for(cell.encode(), 8)}] offset 41"
        for cell in ("us-east", "us-west")
    ]
    assert [window.command for window in desk.sent] == [
        OperatorCommand(action="freeze", operator="ada", reason="a drill", expires_ms=NOW_MS + 1_800_000)
    ] * 2


def test_an_override_and_a_resume_as_json(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    to_east = ["--cell", "us-east", "--json", "--operator", "eve"]
    order = ["control", "override", *to_east, *REASON, "--for", "5m", "--candidates", "300", "--coverage", "0.2"]
    assert cli.main(order) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["cell"], row["action"], row["candidates"], row["coverage"], row["offset"]) == (
        "us-east",
        "override",
        300,
        0.2,
        41,
    )
    assert cli.main(["control", "resume", *to_east]) == 0
    assert json.loads(capsys.readouterr().out)[0]["expires"] is None
    command = desk.sent[-1].command
    assert command is not None
    assert (command.action, command.operator, command.expires_ms) == ("resume", "eve", None)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["freeze", "--cell", "us-east", "--for", "5m"], 2, "--reason"),
        (["freeze", "--cell", "us-east", "--reason", " ", "--for", "5m"], 2, "--reason is empty"),
        (["freeze", "--cell", "us-east", *REASON], 2, "must run out by itself: give --for or --until"),
        (["freeze", "--cell", "us-east", *REASON, "--for", "5x"], 2, "'5x' is no time"),
        (["freeze", *REASON, "--for", "5m"], 2, "which cells?"),
        (["freeze", "--cell", "us-east", "--all", *REASON, "--for", "5m"], 2, "which cells?"),
        (["freeze", "--cell", "us-east", *REASON, "--for", "5m", "--operator", ""], 2, "who says so?"),
        (["override", "--cell", "us-east", *REASON, "--for", "5m"], 2, "--candidates, --coverage or both"),
        (["override", "--cell", "us-east", *REASON, "--for", "5m", "--coverage", "1.5"], 2, "--coverage"),
        (["override", "--cell", "us-east", *REASON, "--for", "5m", "--coverage", "nan"], 2, "--coverage: not a share"),
        (["freeze", "--cell", "x", "--cell", "us-east", *REASON, "--for", "5m"], 1, "cell x is not declared"),
        (["freeze", "--cell", "gone", *REASON, "--for", "5m"], 1, "cell gone is retired"),
        (["override", "--all", *REASON, "--for", "5m", "--candidates", "700"], 1, "700 is not in [100, 600]"),
        (["freeze", "--cell", "us-east", "--reason", "x" * 5_000, "--for", "5m"], 1, "reason"),
    ],
)
def test_what_cannot_be_said_is_one_line_and_nothing_is_sent(
    desk: Desk, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, word: str
) -> None:
    assert cli.main(["control", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert word in said.err
    assert desk.sent == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["freeze", *REASON, "--for", "5m"],
        ["freeze", "--cell", "us-east", "--all", *REASON, "--for", "5m"],
        ["override", "--cell", "us-east", *REASON, "--for", "5m", "--coverage", "nan"],
        ["resume"],
        ["list", "--cell", "us-east", "--all"],
    ],
)
def test_wrong_use_is_told_without_a_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    def unwanted(verb: str) -> None:
        raise AssertionError("looked for a broker")

    monkeypatch.setenv("USER", "ada")
    monkeypatch.setattr(control_orders, "broker_config", unwanted)
    monkeypatch.setattr(control_cli, "broker_config", unwanted)
    assert cli.main(["control", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
