"""`intertidal train` on files and on the world: what it refuses, what it writes, and that it is the same again."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct

from ops.cli import main
from ops.read.columns import columns_of
from ops.record_json import to_json
from ranking.models.load import load_model
from schemas.records import RankingOutcome, RankingRequest, RankingResult

_NUM_REQUESTS = 60
_NUM_ADS = 6


def _logs() -> dict[str, list[Struct]]:
    """Requests of six ads each, all shown and seen; ads of an even number are clicked twice in three times."""
    rng = np.random.default_rng(1)
    found: dict[str, list[Struct]] = {"requests": [], "results": [], "outcomes": []}
    ad_ids = np.arange(_NUM_ADS, dtype="<i8")
    for number in range(_NUM_REQUESTS):
        name, intake_ms = f"q{number}", 1_000 * number
        found["requests"].append(
            RankingRequest(
                request_id=name,
                user_id="u",
                cell="east",
                intake_ms=intake_ms,
                deadline_ms=intake_ms + 500,
                num_base_candidates=_NUM_ADS,
                num_results=_NUM_ADS,
                ad_ids=ad_ids.tobytes(),
                bids=np.ones(_NUM_ADS, dtype="<f4").tobytes(),
                retrieval_scores=np.zeros(_NUM_ADS, dtype="<f4").tobytes(),
                user_features=rng.normal(size=3).astype("<f4").tobytes(),
                history_ids=ad_ids[: number % 3].tobytes(),
            )
        )
        found["results"].append(
            RankingResult(
                request_id=name,
                user_id="u",
                cell="east",
                status="ok",
                error="",
                late=False,
                degraded=False,
                takeover=False,
                intake_ms=intake_ms,
                deadline_ms=intake_ms + 500,
                completed_ms=intake_ms + 50,
                base_latency_us=1,
                latency_us=1,
                num_base_attempts=1,
                num_base_candidates=_NUM_ADS,
                num_candidates_offered=_NUM_ADS,
                num_candidates_ranked=_NUM_ADS,
                ad_ids=ad_ids.tobytes(),
                scores=np.zeros(_NUM_ADS, dtype="<f4").tobytes(),
                routes=["baseline"],
                model_versions=["m"],
                arm="",
                dose=0,
                target_window_index=None,
                optional=[],
                router="r",
                attribution_token="t",
            )
        )
        for ad_id in range(_NUM_ADS):
            kinds = ["view", "click"] if ad_id % 2 == 0 and rng.random() < 2 / 3 else ["view"]
            found["outcomes"] += [
                RankingOutcome(
                    outcome_id=f"{name}/{ad_id}/{kind}",
                    attribution_token="t",
                    request_id=name,
                    user_id="u",
                    cell="east",
                    ad_id=ad_id,
                    kind=kind,  # type: ignore[arg-type]
                    value=0.0,
                    exposure_time_ms=intake_ms + 60,
                    event_time_ms=intake_ms + 70,
                )
                for kind in kinds
            ]
    return found


def _row(record: Struct, offset: int) -> dict[str, Any]:
    return {"_record": type(record).__name__, "_partition": 0, "_offset": offset, **to_json(record)}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    arguments = []
    for name, records in _logs().items():
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(_row(record, n)) + b"\n" for n, record in enumerate(records)))
        arguments += [f"--{name}", str(path)]
    return arguments


def test_a_model_is_trained_on_files_and_is_the_same_again(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = [tmp_path / "one", tmp_path / "other"]
    said = {}
    for bundle in bundles:
        assert main(["train", *files, "--out", str(bundle), "--window", "1s", "--version", "m-7", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
    # The window of the last request's views has not passed when the last outcome happened: 59 are split.
    assert said["num_training_requests"] == 41
    assert said["num_left_out"] == {"pending": _NUM_ADS}
    assert 0.2 < said["quality"]["log_loss"] < 0.8
    assert load_model(bundles[0]).version == "m-7"
    for name in ("weights.safetensors", "manifest.json", "config.json"):
        assert (bundles[0] / name).read_bytes() == (bundles[1] / name).read_bytes()


def test_parquet_says_what_json_lines_say(files: list[str], tmp_path: Path) -> None:
    arguments = []
    for name, records in _logs().items():
        folder = tmp_path / name / "hour=1970-01-01T00"
        folder.mkdir(parents=True)
        rows = [_row(record, offset) for offset, record in enumerate(records)]
        columns = columns_of([type(records[0])])
        pq.write_table(pa.Table.from_pylist(rows, schema=columns), folder / "part.parquet")
        arguments += [f"--{name}", str(tmp_path / name)]
    assert main(["train", *files, "--out", str(tmp_path / "json"), "--window", "1s", "--version", "m"]) == 0
    assert main(["train", *arguments, "--out", str(tmp_path / "columns"), "--window", "1s", "--version", "m"]) == 0
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("json", "columns")]
    assert weights[0] == weights[1]


def test_a_small_world_is_drawn_learned_and_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--world", "--num-requests", "100", "--out", str(tmp_path / "small")]) == 0
    said = capsys.readouterr().out
    assert "version small-1" in said
    assert "true value of 8 ads per request" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give one of --world"),
        (["--world", "--since", "-1h"], "give one of --world"),
        (["--requests", "FILE"], "all three"),
        (["--world", "--until", "-1h"], "--until needs --since"),
        (["--since", "-1h", "--until", "-2h"], "--since is after"),
        (["--since", "yesterday"], "no time such as"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = tmp_path / "some.jsonl"
    some.touch()
    given = [str(some) if argument == "FILE" else argument for argument in arguments]
    assert main(["train", "--out", str(tmp_path / "m"), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    ("line", "says"),
    [(b"{", "no JSON"), (b"[]", "no RankingRequest"), (b'{"request_id": "q"}', "user_id")],
)
def test_a_row_that_is_no_record_is_named(
    line: bytes, says: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "requests.jsonl").open("ab") as file:
        file.write(line + b"\n")
    assert main(["train", *files, "--out", str(tmp_path / "m"), "--window", "1s"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "requests.jsonl, " in said
    assert str(_NUM_REQUESTS + 1) in said
    assert says in said


def test_logs_without_a_view_are_said_to_have_none(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *files, "--out", str(tmp_path / "m"), "--window", "1d"]) == 1
    assert f"{_NUM_REQUESTS * _NUM_ADS} pending" in capsys.readouterr().err
    assert not (tmp_path / "m").exists()
