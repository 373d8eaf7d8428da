"""A Docker engine of straw: its HTTP interface on a Unix socket as far as a broker needs it, without any container."""

import json
import shutil
import socketserver
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

API_VERSION = "1.43"


@dataclass
class FakeContainer:
    """One container: what was asked for, and what became of it."""

    name: str
    image: str
    environment: dict[str, str]
    labels: dict[str, str]
    port_bindings: dict[str, list[dict[str, str]]]
    is_running: bool = False
    num_starts: int = 0

    def described(self) -> dict[str, Any]:
        state = {"Running": self.is_running, "Pid": 4711 if self.is_running else 0, "Status": "running"}
        return {
            "Id": f"id-{self.name}",
            "Name": f"/{self.name}",
            "State": state,
            "Image": self.image,
            "Config": {"Image": self.image, "Labels": self.labels, "Tty": False},
        }


def nothing(_: FakeContainer) -> None:
    return None


@dataclass
class FakeEngine:
    """The engine; ``log`` is what every container prints, ``refuse`` answers a request with an error."""

    containers: dict[str, FakeContainer] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    log: bytes = b""
    on_start: Callable[[FakeContainer], None] = nothing
    on_stop: Callable[[FakeContainer], None] = nothing

    def __enter__(self) -> Self:
        # A socket's path may have 107 characters; a test's own folder is longer at times.
        self._folder = tempfile.mkdtemp(prefix="docker-")
        handler = type("Handler", (_Handler,), {"docker": self})
        self._server = _Server(f"{self._folder}/docker.sock", handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._folder)

    @property
    def host(self) -> str:
        return f"unix://{self._folder}/docker.sock"

    @property
    def socket_path(self) -> Path:
        return Path(self._folder, "docker.sock")

    def by_key(self, key: str) -> FakeContainer | None:
        """The container of a name or id."""
        return self.containers.get(key.removeprefix("id-"))


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        # Who asks whether there is an engine goes when it has read enough.
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    docker: FakeEngine

    def do_GET(self) -> None:
        path = self._path()
        if path == "/_ping":
            return self._answer(200, b"OK", kind="text/plain")
        if path == "/version":
            return self._json(200, {"ApiVersion": API_VERSION, "MinAPIVersion": "1.24"})
        if path.startswith("/images/"):
            image = path.removeprefix("/images/").removesuffix("/json")
            return self._json(200, {"Id": image}) if image in self.docker.images else self._missing(f"image: {image}")
        container = self.docker.by_key(path.split("/")[2])
        if container is None:
            return self._missing(f"container: {path}")
        if path.endswith("/logs"):
            # As Docker frames what a container without a terminal prints: stream, length, bytes.
            frame = b"\x01\0\0\0" + len(self.docker.log).to_bytes(4, "big") + self.docker.log
            return self._answer(200, frame, kind="application/octet-stream")
        return self._json(200, container.described())

    def do_POST(self) -> None:
        path = self._path()
        query = parse_qs(urlsplit(self.path).query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        verb = path.rsplit("/", 1)[-1]
        if verb in self.docker.refuse:
            return self._json(500, {"message": self.docker.refuse[verb]})
        if path == "/images/create":
            self.docker.images.add(f"{query['fromImage'][0]}:{query['tag'][0]}")
            return self._json(200, {"status": "done"})
        if path == "/containers/create":
            return self._create(query["name"][0], json.loads(body))
        container = self.docker.by_key(path.split("/")[2])
        if container is None:
            return self._missing(f"container: {path}")
        if verb == "start":
            container.is_running = True
            container.num_starts += 1
            self.docker.on_start(container)
        elif verb == "stop":
            container.is_running = False
            self.docker.on_stop(container)
        return self._answer(204, b"")

    def do_DELETE(self) -> None:
        container = self.docker.by_key(self._path().split("/")[2])
        if container is None:
            return self._missing(f"container: {self.path}")
        if container.is_running:
            self.docker.on_stop(container)
        del self.docker.containers[container.name]
        return self._answer(204, b"")

    def _create(self, name: str, described: dict[str, Any]) -> None:
        container = FakeContainer(
            name=name,
            image=described["Image"],
            environment=dict(variable.split("=", 1) for variable in described.get("Env") or ()),
            labels=described.get("Labels") or {},
            port_bindings=described["HostConfig"].get("PortBindings") or {},
        )
        self.docker.containers[name] = container
        self._json(201, {"Id": f"id-{name}", "Warnings": []})

    def _path(self) -> str:
        """Path without the version of the interface; noted with its method."""
        path = urlsplit(self.path).path.removeprefix(f"/v{API_VERSION}")
        self.docker.asked.append(f"{self.command} {path}")
        return path

    def _missing(self, what: str) -> None:
        self._json(404, {"message": f"No such {what}"})

    def _json(self, status: int, answer: dict[str, Any]) -> None:
        self._answer(status, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes, *, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return None
