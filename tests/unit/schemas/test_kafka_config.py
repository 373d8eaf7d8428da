"""Where the broker is and how it is reached: TLS and SASL settings pass through, and errors never show a value."""

from pathlib import Path

import pytest

from schemas.kafka.config import client_config


def test_settings_of_the_file_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# comment\nsecurity.protocol=SASL_SSL\n\nsasl.password = p=w # d\n", encoding="utf-8")
    config = client_config("t", environ={"KAFKA_BOOTSTRAP": "b:9092", "KAFKA_CONFIG": str(path)})
    assert config["bootstrap.servers"] == "b:9092"
    assert config["security.protocol"] == "SASL_SSL"
    assert config["sasl.password"] == "p=w # d"


def test_a_broken_line_is_named_and_its_text_is_not(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nhunter2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2") as caught:
        client_config("t", environ={"KAFKA_BOOTSTRAP": "b:9092", "KAFKA_CONFIG": str(path)})
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_and_a_missing_broker_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="KAFKA_BOOTSTRAP is not set"):
        client_config("t", environ={})
    with pytest.raises(ValueError, match="KAFKA_CONFIG: cannot read"):
        client_config("t", environ={"KAFKA_BOOTSTRAP": "b:9092", "KAFKA_CONFIG": str(tmp_path / "none")})
