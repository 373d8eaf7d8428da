"""Attribution tokens: what comes back is what was put in, and nothing that was changed is believed."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.attribution import MAX_TOKEN_LENGTH, MICRO, Attribution, parse_token, token_length
from schemas.attribution_keys import (
    KEYS_ENV,
    UNSIGNED,
    AttributionKeys,
    is_open_to_others,
    keys_from_env,
    load_keys,
    write_keys,
)
from schemas.records.measurement import ARMS

OLD, NEW = (1, b"0123456789abcdef"), (7, b"fedcba9876543210fedcba9876543210")
KEYS = AttributionKeys([OLD, NEW])
IDS: dict[str, Any] = {"request_id": "r-1", "user_id": "u-1"}
SAMPLE = Attribution(
    cell="us-east.3",
    segment="games",
    arm="both",
    intake_ms=1_796_000_000_123,
    depth="half",
    upgrade="no",
    depth_micro=50_000,
    upgrade_micro=999_999,
)

attributions = st.builds(
    Attribution,
    cell=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,30}", fullmatch=True),
    segment=st.text(min_size=1, max_size=20),
    arm=st.sampled_from(ARMS),
    intake_ms=st.integers(0, 2**48 - 1),
    depth=st.sampled_from(["", "none", "half", "full"]),
    upgrade=st.sampled_from(["", "no", "yes"]),
    depth_micro=st.integers(1, MICRO),
    upgrade_micro=st.integers(1, MICRO),
    is_aa=st.booleans(),
)


@given(attributions, st.sampled_from([UNSIGNED, KEYS]))
@settings(max_examples=100)
def test_what_was_put_in_comes_back(attribution: Attribution, keys: AttributionKeys) -> None:
    token = attribution.token(**IDS, keys=keys)
    assert parse_token(token, **IDS, keys=keys) == attribution
    assert len(token) <= token_length(cell=attribution.cell, segment=attribution.segment)


def test_a_token_of_the_longest_names_fits_its_field() -> None:
    longest = 160
    for cell_length in (1, 80, 128):
        segment = "s" * (longest - cell_length)
        token = Attribution(cell="c" * cell_length, segment=segment, arm="rma", intake_ms=1).token(**IDS, keys=KEYS)
        assert len(token) == token_length(cell="c" * cell_length, segment=segment) == MAX_TOKEN_LENGTH
        assert token_length(cell="c" * cell_length, segment=segment + "s") > MAX_TOKEN_LENGTH


def test_no_change_goes_unseen() -> None:
    token = SAMPLE.token(**IDS, keys=KEYS)
    for place in range(len(token)):
        for other in "A_z0":
            changed = token[:place] + other + token[place + 1 :]
            if changed != token:
                with pytest.raises(ValueError, match=r"^(is|does)"):
                    parse_token(changed, **IDS, keys=KEYS)
    others: list[dict[str, Any]] = [
        {**IDS, "request_id": "r-2"},
        {**IDS, "user_id": "u-2"},
        {"request_id": "r-", "user_id": "1u-1"},
    ]
    for ids in others:
        with pytest.raises(ValueError, match="signature of key 7"):
            parse_token(token, **ids, keys=KEYS)
    for junk in ("", "A", "====", "not base64!", token[:20], token + "AAAA", "é"):
        with pytest.raises(ValueError, match=r"^(is|does)"):
            parse_token(junk, **IDS, keys=KEYS)


def test_keys_follow_each_other() -> None:
    before, after = AttributionKeys([OLD]), AttributionKeys([NEW])
    token = SAMPLE.token(**IDS, keys=before)
    assert parse_token(token, **IDS, keys=KEYS) == SAMPLE
    with pytest.raises(ValueError, match="key 1, which is not known"):
        parse_token(token, **IDS, keys=after)
    assert parse_token(SAMPLE.token(**IDS, keys=KEYS), **IDS, keys=after) == SAMPLE


def test_an_unsigned_token_is_believed_only_where_no_keys_are_known() -> None:
    token = SAMPLE.token(**IDS)
    assert parse_token(token, **IDS) == SAMPLE
    with pytest.raises(ValueError, match="is not signed"):
        parse_token(token, **IDS, keys=KEYS)
    with pytest.raises(ValueError, match=f"{KEYS_ENV} names no keys"):
        parse_token(SAMPLE.token(**IDS, keys=KEYS), **IDS)
    # Whoever strips the signature off has to say so, and is not believed.
    data = bytearray(base64.urlsafe_b64decode(SAMPLE.token(**IDS, keys=KEYS) + "=="))[:-16]
    data[1] = 0
    stripped = base64.urlsafe_b64encode(bytes(data)).rstrip(b"=").decode()
    with pytest.raises(ValueError, match="is not signed"):
        parse_token(stripped, **IDS, keys=KEYS)


def test_tokens_of_the_first_version_are_still_read() -> None:
    found = parse_token("1|us-east|rma|64|1796000000123|", **IDS)
    assert found == Attribution(cell="us-east", segment="(none)", arm="rma", intake_ms=1_796_000_000_123)
    assert parse_token("1|us-east|rma|64|5|a|b", **IDS).segment == "a|b"
    for broken in (
        "1|us-east|rma|64|x|",
        "1|us-east|rma|64|-5|",
        f"1|us-east|rma|64|{'9' * 17}|",
        "1|us-east",
        "3|us-east|rma|64|5|",
        "1|us-east|all|64|5|",
    ):
        with pytest.raises(ValueError, match="is no attribution token"):
            parse_token(broken, **IDS)
    with pytest.raises(ValueError, match="is not signed"):
        parse_token("1|us-east|rma|64|5|", **IDS, keys=KEYS)


def test_a_token_without_a_segment_is_none() -> None:
    nameless = replace(SAMPLE, segment="").token(**IDS)
    with pytest.raises(ValueError, match="is no attribution token"):
        parse_token(nameless, **IDS)


def test_a_file_of_keys_is_written_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write_keys(path, [OLD, NEW])
    assert (load_keys(path).signing_id, path.stat().st_mode & 0o777) == (NEW[0], 0o600)
    with pytest.raises(FileExistsError):
        write_keys(path, [NEW])
    environ = {KEYS_ENV: str(path)}
    assert not is_open_to_others(environ)
    assert not is_open_to_others({})
    path.chmod(0o644)
    assert is_open_to_others(environ)


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# the keys of this year\n\n1 {OLD[1].hex()}  # until May\n7 {NEW[1].hex()}\n")
    keys = load_keys(path)
    assert keys.signing_id == 7
    assert parse_token(SAMPLE.token(**IDS, keys=KEYS), **IDS, keys=keys) == SAMPLE
    assert keys_from_env({KEYS_ENV: str(path)}).signing_id == 7
    assert keys_from_env({}) is UNSIGNED
    assert OLD[1].hex() not in repr(keys)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 00\n", ":1: key 1 has 1 bytes, at least 16 are needed"),
        ("\n0 " + "ab" * 16, ":2: the id of a key must be in 1 to 255, is 0"),
        ("256 " + "ab" * 16, ":1: the id of a key must be in 1 to 255, is 256"),
        (f"1 {'ab' * 16}\n1 {'cd' * 16}", ":2: key 1 is given twice"),
        ("1 secretsecretsecret", ":1: a line is ID HEX"),
        ("x " + "ab" * 16, ":1: a line is ID HEX"),
        ("1", ":1: a line is ID HEX"),
        ("# nothing\n", ": holds no key"),
    ],
)
def test_a_bad_file_of_keys_is_named_by_line_and_not_repeated(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^.*$") as refused:
        load_keys(path)
    assert str(refused.value) == f"{path}{says}"
    with pytest.raises(ValueError, match="No such file"):
        load_keys(tmp_path / "none")
