"""Requests to a registry over HTTP, as Confluent's client makes them, and what is told of failures: never a secret."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from schemas.kafka import registry as registry_module
from schemas.kafka.registry import connect_registry
from schemas.kafka.registry_api import (
    LookingApi,
    NoSuchSchemaError,
    NotOursToRegisterError,
    RegistryApi,
    RegistryAwayError,
    SchemaRefusedError,
    registry_settings,
)

pytest.importorskip("confluent_kafka.schema_registry", reason="the registry's client is an extra")

SECRET = "s3cr3t"


class Server(ThreadingHTTPServer):
    """Answers each request with what the test has put there."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, str]] = {}
        self.requests: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path, self.headers.get("Authorization", "")))
        status, body = self.server.answers.get(f"{self.command} {path}", (404, '{"error_code": 40401, "message": ""}'))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base class
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def api(url: str, **environ: str) -> RegistryApi:
    settings = registry_settings({"SCHEMA_REGISTRY_URL": url, **environ})
    assert settings is not None
    return RegistryApi(settings)


def test_no_url_no_registry() -> None:
    assert registry_settings({}) is None
    assert connect_registry({}) is None


def test_a_schema_is_fetched_with_the_user_and_password_of_the_file(server: Server, tmp_path: Path) -> None:
    server.answers["GET /schemas/ids/7"] = (200, json.dumps({"schema": '{"a": 1}'}))
    config = tmp_path / "registry.properties"
    config.write_text(f"# the registry\nbasic.auth.user.info=ann:{SECRET}\ntimeout=5\n")
    assert api(server.url, SCHEMA_REGISTRY_CONFIG=str(config)).schema_text(7) == '{"a": 1}'
    assert server.requests[0][2] == "Basic " + base64.b64encode(f"ann:{SECRET}".encode()).decode()


def test_a_password_in_the_address_is_used_and_never_shown(server: Server) -> None:
    url = server.url.replace("//", f"//ann:{SECRET}@")
    settings = registry_settings({"SCHEMA_REGISTRY_URL": url})
    assert SECRET not in repr(settings)
    found = api(url)
    with pytest.raises(NoSuchSchemaError) as caught:
        found.schema_text(7)
    assert SECRET not in str(caught.value)
    assert server.requests[0][2].startswith("Basic ")


def test_nobody_there_is_no_wrong_record_and_tells_no_secret() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(RegistryAwayError) as caught:
        api(f"http://ann:{SECRET}@127.0.0.1:{port}").schema_text(7)
    assert str(caught.value) == f"no answer from the Schema Registry at http://127.0.0.1:{port}: ConnectError"
    assert caught.value.__cause__ is None


def test_a_request_that_hangs_is_given_up(tmp_path: Path) -> None:
    config = tmp_path / "registry.properties"
    config.write_text("timeout=0.2\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryAwayError, match="ReadTimeout"):
            api(url, SCHEMA_REGISTRY_CONFIG=str(config)).schema_text(7)


@pytest.mark.parametrize(
    "answer",
    [
        (500, '{"error_code": 50001, "message": "store"}'),
        (401, '{"error_code": 401, "message": "who"}'),
        (429, ""),
        (404, "<html>no such page</html>"),
        (200, "<html>welcome</html>"),
        (200, "{}"),
        (200, "[]"),
    ],
)
def test_whatever_else_answers_there_is_a_registry_that_is_away(server: Server, answer: tuple[int, str]) -> None:
    server.answers["GET /schemas/ids/7"] = answer
    with pytest.raises(RegistryAwayError):
        api(server.url).schema_text(7)


@pytest.mark.parametrize("code", [40401, 40403])
def test_an_id_that_is_not_there(server: Server, code: int) -> None:
    server.answers["GET /schemas/ids/7"] = (404, json.dumps({"error_code": code, "message": "no"}))
    with pytest.raises(NoSuchSchemaError):
        api(server.url).schema_text(7)


def test_a_known_schema_is_only_looked_up(server: Server) -> None:
    server.answers["POST /subjects/n.R"] = (200, json.dumps({"id": 3, "version": 1, "schema": "{}", "subject": "n.R"}))
    assert api(server.url).find_or_register("n.R", "{}") == 3
    assert [request[:2] for request in server.requests] == [("POST", "/subjects/n.R")]


def test_who_only_looks_registers_nothing(server: Server) -> None:
    with pytest.raises(NotOursToRegisterError, match="topics create"):
        LookingApi(api(server.url)).find_or_register("n.R", "{}")
    assert [request[:2] for request in server.requests] == [("POST", "/subjects/n.R")]
    server.answers["POST /subjects/n.R"] = (200, json.dumps({"id": 3, "version": 1, "schema": "{}", "subject": "n.R"}))
    assert LookingApi(api(server.url)).find_or_register("n.R", "{}") == 3


def test_who_brings_the_first_version_sets_that_all_must_agree(server: Server) -> None:
    server.answers["POST /subjects/n.R/versions"] = (200, '{"id": 4}')
    server.answers["PUT /config/n.R"] = (200, '{"compatibility": "FULL_TRANSITIVE"}')
    assert api(server.url).find_or_register("n.R", "{}") == 4
    assert server.requests[-1][:2] == ("PUT", "/config/n.R")


def test_another_version_leaves_the_subject_as_it_is(server: Server) -> None:
    server.answers["GET /subjects/n.R/versions"] = (200, "[1]")
    server.answers["POST /subjects/n.R/versions"] = (200, '{"id": 5}')
    assert api(server.url).find_or_register("n.R", "{}") == 5
    assert all(request[0] != "PUT" for request in server.requests)


def test_who_may_not_register_is_told_who_may(server: Server) -> None:
    server.answers["POST /subjects/n.R/versions"] = (403, '{"error_code": 40301, "message": "no"}')
    with pytest.raises(NotOursToRegisterError, match=r"HTTP 403: run `intertidal topics create`"):
        api(server.url).find_or_register("n.R", "{}")


def test_a_refused_schema_says_why(server: Server) -> None:
    server.answers["POST /subjects/n.R/versions"] = (409, '{"error_code": 409, "message": "incompatible:\\n field a"}')
    with pytest.raises(SchemaRefusedError, match="incompatible: field a"):
        api(server.url).find_or_register("n.R", "{}")


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "ftp://host", "http://", f"http://ann:{SECRET}@host:port"])
def test_a_wrong_address_is_named_without_its_value(url: str) -> None:
    with pytest.raises(ValueError, match="SCHEMA_REGISTRY_URL must be") as caught:
        registry_settings({"SCHEMA_REGISTRY_URL": url})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"basic.auth.user.info {SECRET}", "line 1: not of the form name=value"),
        (f"timeout={SECRET}", "timeout must be a number"),
        ("ssl.ca.location=/nonexistent", "FileNotFoundError"),
        (f"no.such.setting={SECRET}", "no.such.setting"),
    ],
)
def test_a_wrong_setting_is_named_without_its_value(tmp_path: Path, line: str, words: str) -> None:
    config = tmp_path / "registry.properties"
    config.write_text(line + "\n")
    with pytest.raises(ValueError, match=words) as caught:
        api("http://127.0.0.1:1", SCHEMA_REGISTRY_CONFIG=str(config))
    assert SECRET not in str(caught.value)


def test_one_process_has_one_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    one = registry_settings({"SCHEMA_REGISTRY_URL": "http://one"})
    assert one is not None
    known = object()
    monkeypatch.setattr(registry_module, "_connected", (one, known))
    assert connect_registry({"SCHEMA_REGISTRY_URL": "http://one"}) is known
    with pytest.raises(ValueError, match="another one is in use"):
        connect_registry({"SCHEMA_REGISTRY_URL": "http://other"})
