"""A part's health over HTTP on loopback: /metrics, /healthz (is it alive), /readyz (can it do its work).

A part may take commands beside that: a POST of JSON to a path of its own.

A check watches the work (offsets that move, a broker that answers), not the process: a process that
answers here and moves nothing is the failure that a liveness check exists to find.
"""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

from ops.telemetry.metrics import Metrics

# None while all is well, else the reason in a few words.
Check = Callable[[], str | None]
# What is done with a body: the status, and what is answered as JSON.
Command = Callable[[bytes], tuple[int, Mapping[str, object]]]

_MAX_BODY_BYTES: Final = 1 << 16
METRICS_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class HealthServer:
    """Serves one part's metrics and checks from a daemon thread."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        live: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        commands: Mapping[str, Command] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Binds at once; port 0 takes a free one.

        Raises:
            OSError: the port is in use; `filename` says which.
        """
        self._metrics = metrics
        self._checks = {"/healthz": dict(live or {}), "/readyz": dict(ready or {})}
        self._commands = dict(commands or {})
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler())
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"health at {host}:{port}") from error
        self._server.daemon_threads = True
        # The interval bounds how long `close` waits.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="health", daemon=True)
        self.host = host
        self.port = int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Returns the address to scrape, without a path."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> Self:
        """Starts to answer and returns itself."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops to answer and frees the port; without effect the second time."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Returns status, content type and body for a path."""
        if path == "/metrics":
            return 200, METRICS_CONTENT_TYPE, self._metrics.render()
        if path not in self._checks:
            return 404, "application/json", b'{"error": "not found"}\n'
        reasons = run_checks(self._checks[path])
        body = json.dumps({"ok": not reasons, "reasons": reasons}).encode() + b"\n"
        return (503 if reasons else 200), "application/json", body

    def command(self, path: str, content_type: str, body: bytes) -> tuple[int, str, bytes]:
        """Returns status, content type and body for what was posted to a path."""
        said: Mapping[str, object]
        if path not in self._commands:
            status, said = 404, {"error": "not found"}
        elif content_type.partition(";")[0].strip().lower() != "application/json":
            # A page in a browser of this host may post a form to loopback, but no JSON.
            status, said = 415, {"error": "application/json is wanted"}
        else:
            status, said = self._commands[path](body)
        return status, "application/json", json.dumps(said).encode() + b"\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer, command = self.answer, self.command

        class Handler(BaseHTTPRequestHandler):
            # Seconds for a client that says nothing: each has a thread.
            timeout = 10

            def do_GET(self) -> None:  # the name is the base class's
                self._say(*answer(self.path.partition("?")[0]))

            def do_POST(self) -> None:  # the name is the base class's
                length = self.headers.get("Content-Length", "")
                if not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
                    self._say(413, "application/json", b'{"error": "a length, and a smaller one, is wanted"}\n')
                    return
                body = self.rfile.read(int(length))
                self._say(*command(self.path, self.headers.get("Content-Type", ""), body))

            def _say(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Says nothing: a scrape every few seconds is no news."""

        return Handler


def run_checks(checks: Mapping[str, Check]) -> dict[str, str]:
    """Returns the reason of each check that found one; a check that raises counts as a reason."""
    reasons: dict[str, str] = {}
    for name, check in checks.items():
        try:
            reason = check()
        except Exception as error:  # noqa: BLE001  # whatever it is, the part is not known to be well
            reason = f"the check failed: {type(error).__name__}: {error}"
        if reason is not None:
            reasons[name] = reason
    return reasons
