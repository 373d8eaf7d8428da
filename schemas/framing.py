"""How a schema is named in front of an Avro body: single-object encoding, or the Confluent wire format.

Single-object encoding (Avro specification): C3 01, then the schema's CRC-64-AVRO fingerprint, 8 bytes little-endian.
Confluent wire format: 00, then the registry's schema id, 4 bytes big-endian. Readers accept both in one topic.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from schemas.avro import decode_body, encode_body, schema_fingerprint
from schemas.errors import RecordError
from schemas.records.dead_letter import DeadLetter
from schemas.versions import released_schemas

R = TypeVar("R", bound=Struct)

SINGLE_OBJECT_MARKER = b"\xc3\x01"
CONFLUENT_MAGIC = 0
SINGLE_OBJECT_HEADER_BYTES = 10
CONFLUENT_HEADER_BYTES = 5
MAX_RECORD_BYTES = 1 << 20
# An envelope holds a whole record and its headers beside its own fields.
DEAD_LETTER_MAX_BYTES = 4 << 20

# Resolves a registry's schema id to (record name, writer schema). Raises RecordError for an id that leads to nothing
# that can be read, SchemaPendingError for one that is not known yet.
SchemaById = Callable[[int], tuple[str, Any]]


class SchemaRegistry(Protocol):
    """What framing asks of a Schema Registry. Neither method waits for the network."""

    def schema_by_id(self, schema_id: int) -> tuple[str, Any]:
        """Record name and writer schema of an id; raises as SchemaById says."""
        ...

    def id_of(self, record_type: type[Struct]) -> int:
        """Id of the current schema of one of our record types; raises where the registry does not have it."""
        ...


# The registry of this process, set once where it starts. Ids mean the same to every reader and writer in it, and the
# pure processors decode without being handed one.
_registry: SchemaRegistry | None = None


def use_registry(registry: SchemaRegistry | None) -> None:
    """Frame and read records with a Schema Registry from now on, or with none."""
    global _registry
    _registry = registry


def encode(record: Struct) -> bytes:
    """Record in Avro single-object encoding."""
    return SINGLE_OBJECT_MARKER + schema_fingerprint(type(record)) + encode_body(record)


def frame(record: Struct) -> bytes:
    """Record as it is sent: in the Confluent wire format where a registry is in use, else as ``encode`` has it."""
    if _registry is None:
        return encode(record)
    schema_id = _registry.id_of(type(record))
    return CONFLUENT_MAGIC.to_bytes(1, "big") + schema_id.to_bytes(4, "big") + encode_body(record)


def require_schema(value: bytes | None) -> None:
    """Return when the schema of a framed value is known, or will never be; raises SchemaPendingError otherwise.

    For those who must not begin with a record before they can end with it. Cheap where no registry is in use.
    """
    if _registry is None or not value or value[0] != CONFLUENT_MAGIC or len(value) < CONFLUENT_HEADER_BYTES:
        return
    # Asked of every record: a context manager would cost more than the question.
    try:  # noqa: SIM105
        _registry.schema_by_id(int.from_bytes(value[1:CONFLUENT_HEADER_BYTES], "big"))
    except RecordError:
        pass


class Decoder:
    """Reads the record types of one topic from framed bytes, as this release writes them or an earlier one did.

    ``schema_by_id`` resolves Confluent framing, by default the registry in use; where there is none such records are
    refused as ``unknown_schema``. Larger values than ``max_bytes`` are not looked into.
    """

    def __init__(
        self,
        record_types: Sequence[type[Struct]],
        *,
        schema_by_id: SchemaById | None = None,
        max_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._by_fingerprint: dict[bytes, tuple[type[Struct], Any]] = {}
        for record_type in record_types:
            for fingerprint, writer_schema in released_schemas(record_type).items():
                self._by_fingerprint[fingerprint] = (record_type, writer_schema)
            self._by_fingerprint[schema_fingerprint(record_type)] = (record_type, None)
        self._by_name = {record_type.__name__: record_type for record_type in record_types}
        self._schema_by_id = schema_by_id
        self._max_bytes = max_bytes

    def decode(self, value: bytes | None) -> Struct:
        """Record in ``value``; raises RecordError with the reason, field and position (counted from the frame).

        Raises SchemaPendingError when its schema is not known yet: nothing is wrong with the record then.
        """
        record_type, writer_schema, header_bytes = self.frame_of(value)
        assert value is not None, "without a value there is no frame"
        return _body(value, header_bytes, record_type, writer_schema)

    def frame_of(self, value: bytes | None) -> tuple[type[Struct], Any, int]:
        """Type of the record in ``value``, the schema of its body (None: the type's own), and the frame's length.

        Raises as ``decode`` does for what is not in the body.
        """
        if not value:
            raise RecordError("empty", "no value")
        if len(value) > self._max_bytes:
            raise RecordError("too_large", f"{len(value)} bytes, at most {self._max_bytes} are read")
        if value[:2] == SINGLE_OBJECT_MARKER:
            return self._single_object(value)
        if value[0] == CONFLUENT_MAGIC:
            return self._confluent(value)
        raise RecordError("bad_framing", f"starts with {value[:2].hex()}, neither c301 nor 00", position=0)

    def _single_object(self, value: bytes) -> tuple[type[Struct], Any, int]:
        if len(value) < SINGLE_OBJECT_HEADER_BYTES:
            raise RecordError("truncated", "ends inside the frame", position=len(value))
        fingerprint = value[2:SINGLE_OBJECT_HEADER_BYTES]
        known = self._by_fingerprint.get(fingerprint)
        if known is None:
            raise RecordError("unknown_schema", f"fingerprint {fingerprint.hex()}", position=2)
        record_type, writer_schema = known
        return record_type, writer_schema, SINGLE_OBJECT_HEADER_BYTES

    def _confluent(self, value: bytes) -> tuple[type[Struct], Any, int]:
        if len(value) < CONFLUENT_HEADER_BYTES:
            raise RecordError("truncated", "ends inside the frame", position=len(value))
        schema_id = int.from_bytes(value[1:CONFLUENT_HEADER_BYTES], "big")
        schema_by_id = self._schema_by_id or (None if _registry is None else _registry.schema_by_id)
        if schema_by_id is None:
            raise RecordError(
                "unknown_schema", f"registry schema id {schema_id}, but no registry is configured", position=1
            )
        name, writer_schema = schema_by_id(schema_id)
        record_type = self._by_name.get(name)
        if record_type is None:
            raise RecordError("unknown_schema", f"schema id {schema_id} is {name}, not of this topic", position=1)
        return record_type, writer_schema, CONFLUENT_HEADER_BYTES


def decode_as(value: bytes | None, record_type: type[R]) -> R:
    """Record of one known type from framed bytes; raises as ``Decoder.decode``."""
    max_bytes = DEAD_LETTER_MAX_BYTES if issubclass(record_type, DeadLetter) else MAX_RECORD_BYTES
    record = Decoder([record_type], max_bytes=max_bytes).decode(value)
    assert isinstance(record, record_type)
    return record


def _body(value: bytes, header_bytes: int, record_type: type[R], writer_schema: Any) -> R:
    try:
        return decode_body(value[header_bytes:], record_type, writer_schema=writer_schema)
    except RecordError as error:
        if error.position is not None:
            error.position += header_bytes
        raise
