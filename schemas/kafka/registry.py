"""The Schema Registry of a process: what each id stands for, asked in the background, and the ids of our own schemas.

1. At the start the current schema of every record of the contract is looked up, and registered where it is new: from
   then on these can be written and read whether the registry answers or not.
2. An id that is not known is asked for by a thread of its own, never by whoever reads: that one gets
   SchemaPendingError, and waits with the record and what stands behind it. So a registry that is away, or slow, holds
   up nothing but records that cannot be understood without it.
3. What an id stands for never changes and is kept; that it stands for nothing is kept for a minute.

Nothing of this is written to disk: ids belong to one registry, and a table that outlives it (one in memory that was
started anew, another one at the same address) would read records with the wrong schema.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from schemas.errors import RecordError, SchemaPendingError
from schemas.framing import require_schema, use_registry
from schemas.kafka.registry_api import (
    LookingApi,
    NoSuchSchemaError,
    NotOursToRegisterError,
    RegistryApi,
    RegistryAwayError,
    RegistryError,
    RegistrySettings,
    SchemaRefusedError,
    registry_settings,
)
from schemas.registered import contract_types, registered_schema, subject
from schemas.writer_schemas import SchemaTable, WriterSchema, by_subject, readable

START_TIMEOUT_S: Final = 10.0
MAX_ASKED: Final = 1_024
# Registries number with a signed integer: they answer for anything larger as if they had failed.
MAX_SCHEMA_ID: Final = 2**31 - 1
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


class Api(Protocol):
    """What is asked of a registry; raises as RegistryApi does."""

    def schema_text(self, schema_id: int) -> str: ...

    def find_or_register(self, subject: str, text: str) -> int: ...


class Registry:
    """Ids and schemas of one registry, for every reader and writer of a process."""

    def __init__(
        self,
        api: Api,
        *,
        record_types: tuple[type[Struct], ...],
        wait_s: float = 0.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the requests to make.

        ``wait_s`` is how long a reader waits for an id that is not known, and gives up then; zero for one that goes on
        with something else and comes back.
        """
        self._api = api
        self._record_types = record_types
        self._by_subject = by_subject(record_types)
        self._wait_s = wait_s
        self._clock_s = clock_s
        self._ids: dict[type[Struct], int] = {}
        # Those that are not there, and not ours to register: they cannot be written, and need not be.
        self._missing: dict[type[Struct], str] = {}
        # Guards all below; notified whenever an id has been answered for.
        self._changed = threading.Condition()
        self._table = SchemaTable(clock_s=clock_s)
        # In the order in which they were asked.
        self._asked: dict[int, None] = {}
        self._trouble: str | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._answer, name="schema-registry", daemon=True)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Learn the ids of our own schemas; raises RegistryError when that cannot be done in time."""
        deadline_s = self._clock_s() + timeout_s
        pause_s = _FIRST_PAUSE_S
        for record_type in self._record_types:
            text = json.dumps(registered_schema(record_type))
            while record_type not in self._ids and record_type not in self._missing:
                try:
                    schema_id = self._api.find_or_register(subject(record_type), text)
                except SchemaRefusedError as error:
                    raise RegistryError(f"{subject(record_type)}: {error}") from None
                except NotOursToRegisterError as error:
                    self._missing[record_type] = f"{subject(record_type)}: {error}"
                except RegistryAwayError:
                    if self._clock_s() >= deadline_s:
                        raise
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                else:
                    self._ids[record_type] = schema_id
                    self._table.own(schema_id, record_type)
        self._thread.start()

    def close(self) -> None:
        """End the thread; ids that are known stay known."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def id_of(self, record_type: type[Struct]) -> int:
        """Id of the current schema of a record of the contract; raises RegistryError where it is not registered."""
        schema_id = self._ids.get(record_type)
        if schema_id is None:
            raise RegistryError(self._missing[record_type])
        return schema_id

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        """Record name and writer schema of an id.

        Raises RecordError for an id that leads to nothing that can be read, SchemaPendingError for one not known yet,
        RegistryError for one that was waited for in vain.
        """
        if schema_id > MAX_SCHEMA_ID:
            raise RecordError("unknown_schema", f"{schema_id} is no id of a Schema Registry", position=1)
        own = self._table.find_own(schema_id)
        if own is not None:
            return own.record, own.schema
        with self._changed:
            found = self._table.find(schema_id)
            if found is None:
                if len(self._asked) < MAX_ASKED:
                    self._asked[schema_id] = None
                    self._changed.notify_all()
                if self._wait_s:
                    self._changed.wait_for(lambda: schema_id not in self._asked, self._wait_s)
                    found = self._table.find(schema_id)
            if found is None:
                why = f"schema id {schema_id} is not known yet: {self._trouble or 'the Schema Registry has been asked'}"
                raise RegistryError(why) if self._wait_s else SchemaPendingError(why)
        return found.record, found.schema

    def _answer(self) -> None:
        """Ask for one id after the other; while there is no answer, for each in turn with growing pauses."""
        pause_s = _FIRST_PAUSE_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._is_closed)
                if self._is_closed:
                    return
                schema_id = next(iter(self._asked))
            try:
                found, why = self._look_up(schema_id)
            except RegistryAwayError as error:
                with self._changed:
                    self._trouble = str(error)
                    # Behind the others: it may be this id alone for which the registry has no answer.
                    self._asked[schema_id] = self._asked.pop(schema_id)
                    self._changed.wait_for(lambda: self._is_closed, pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            with self._changed:
                self._trouble = None
                if found is None:
                    self._table.refuse(schema_id, why)
                else:
                    self._table.know(schema_id, found)
                del self._asked[schema_id]
                self._changed.notify_all()

    def _look_up(self, schema_id: int) -> tuple[WriterSchema | None, str]:
        """A schema that can be read, or why the id leads to none; raises RegistryAwayError."""
        try:
            return readable(self._api.schema_text(schema_id), self._by_subject), ""
        except NoSuchSchemaError:
            return None, "is not in the registry"
        except (SchemaRefusedError, ValueError) as error:
            return None, str(error)
        except RegistryAwayError:
            raise
        except Exception as error:  # noqa: BLE001  # what somebody else registered must not end the thread
            return None, f"cannot be judged: {type(error).__name__}"


_connected: tuple[RegistrySettings, Registry] | None = None


def connect_registry(
    environ: Mapping[str, str] | None = None, *, wait_s: float = 0.0, registers: bool = True
) -> Registry | None:
    """Frame and read records with the registry that the environment names from now on; None where it names none.

    Once per process: later calls return the same one. ``wait_s`` is for short verbs, which have nothing else to do
    than wait for a schema; verbs that only look register nothing (``registers``). Raises ValueError for a wrong
    setting, RegistryError when the registry does not answer or does not take one of our schemas.
    """
    global _connected
    settings = registry_settings(environ)
    if settings is None:
        return None
    if _connected is not None:
        known, registry = _connected
        if known != settings:
            raise ValueError("one process has one Schema Registry, and another one is in use already")
        return registry
    api = RegistryApi(settings)
    registry = Registry(api if registers else LookingApi(api), record_types=contract_types(), wait_s=wait_s)
    registry.start()
    use_registry(registry)
    _connected = settings, registry
    return registry


def wait_for_schema(value: bytes | None, *, timeout_s: float) -> None:
    """Return once the schema of a framed value is known, or is known to be none; raises RegistryError otherwise."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            require_schema(value)
        except SchemaPendingError as error:
            if time.monotonic() >= deadline_s:
                raise RegistryError(str(error)) from None
            time.sleep(0.02)
        else:
            return
