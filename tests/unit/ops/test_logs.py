"""One line a record, fields at its end, and no secret in either."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from ops.telemetry.logs import get_log, set_up_logging
from ops.telemetry.redaction import redact, redact_text


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logging("ingest", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_record_is_time_level_part_message_fields(stream: io.StringIO) -> None:
    get_log("x").info("closed", cell="us-east", window=173, rate=0.5, last=None)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ingest closed cell=us-east window=173 rate=0.5 last=null\n",
        stream.getvalue(),
    )


def test_a_value_that_is_no_plain_word_is_quoted(stream: io.StringIO) -> None:
    get_log("x").info("m", a="two words", b="", c="k=v", d=["x"])
    assert stream.getvalue().endswith('a="two words" b="" c="k=v" d=["x"]\n')


def test_a_record_is_one_line_whatever_is_in_it(stream: io.StringIO) -> None:
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError:
        get_log("x").exception("broke\r\ndown", detail="a\nb")
    assert stream.getvalue().count("\n") == 1
    assert r"broke\r\ndown" in stream.getvalue()
    assert "RuntimeError: first" in stream.getvalue()


def test_the_level_is_kept(stream: io.StringIO) -> None:
    get_log("x").debug("silent")
    assert stream.getvalue() == ""
    with pytest.raises(ValueError, match="NONSENSE"):
        set_up_logging("ingest", level="nonsense")


SECRETS = ["sasl.password", "ssl.key.password", "oauth.client.secret", "sasl.jaas.config", "API_TOKEN", "ssl.key.pem"]


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_redacted_by_name_at_every_depth(name: str, stream: io.StringIO) -> None:
    settings = {name: "hunter2", "nested": {name: "hunter2"}, "list": [{name: "hunter2"}], "bootstrap.servers": "b:1"}
    assert "hunter2" not in str(redact(settings))
    assert redact(settings)["bootstrap.servers"] == "b:1"
    get_log("x").info("settings", config=settings)
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "bad line: sasl.password=hunter2",
        "sasl.password = hunter2, and more",
        "{'sasl.password': 'hunter2', 'x': 1}",
        '{"client_secret": "hunter2"}',
        'sasl.jaas.config=org.Module required username="u" password="hunter2";',
        "token: hunter2",
        "password='two hunter2 words'",
    ],
)
def test_secrets_are_redacted_in_free_text(text: str, stream: io.StringIO) -> None:
    get_log("x").warning(text)
    try:
        raise ValueError(text)
    except ValueError:
        get_log("x").exception("broke")
    assert "hunter2" not in stream.getvalue()


def test_what_is_no_secret_stays() -> None:
    text = "partition=3 offset=17 key=us-east the password was wrong"
    assert redact_text(text) == text
