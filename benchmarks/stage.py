"""Where the measurements on Kafka take place: a broker, a namespace of their own, and the processes in it."""

import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ops.broker.locate import find_broker
from ops.demo.supervisor import PartCommand, Supervisor
from schemas.kafka.admin import TopicAdmin
from schemas.kafka.config import BOOTSTRAP_ENV, NAMESPACE_ENV, Config, client_config
from schemas.topics import Namespace


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A broker with the topics of one namespace, gone when the block ends, as are the processes started here."""

    namespace: Namespace
    environ: Mapping[str, str]
    folder: Path
    processes: Supervisor = field(repr=False)

    def config(self, client_id: str) -> Config:
        """Settings of one client, which says nothing on stderr: the broker ends before some clients do."""
        return {**client_config(client_id, environ=self.environ), "log_level": 0}

    def start(self, name: str, *arguments: str) -> None:
        """Start ``python -m`` with these arguments."""
        self.processes.start(
            PartCommand(name=name, argv=(sys.executable, "-m", *arguments), environ=self.environ, restarted=False)
        )


@contextmanager
def on_kafka() -> Iterator[Stage]:
    """A stage on the broker that `ops.broker.locate.find_broker` finds or starts. Raises BrokerError."""
    with find_broker() as broker, tempfile.TemporaryDirectory(prefix="intertidal-bench-") as folder:
        namespace = Namespace(f"bench-{uuid.uuid4().hex[:8]}.")
        environ = {
            **os.environ,
            BOOTSTRAP_ENV: broker.bootstrap,
            NAMESPACE_ENV: namespace.prefix,
            "INTERTIDAL_RUNTIME_DIR": folder,
        }
        admin = TopicAdmin(client_config("bench", environ=environ))
        admin.create(namespace)
        processes = Supervisor(log_dir=Path(folder))
        try:
            yield Stage(namespace=namespace, environ=environ, folder=Path(folder), processes=processes)
        finally:
            processes.stop()
            admin.delete(namespace)
