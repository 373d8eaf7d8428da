"""A record's schema as a Schema Registry and the history of schemas hold it: what matters on the wire, and no words.

Without documentation a schema changes only when its bytes or defaults do, and an id stays what it is when a sentence
is put better. The subject is the record's full name ("record name strategy"): some topics carry several record types,
one type is on several topics, and those of a replay have names of their own, yet each type has one history.
"""

from functools import cache
from typing import Any

from msgspec import Struct

from schemas.avro import NAMESPACE, avro_schema
from schemas.topics import DEAD_LETTER_TYPES, TOPICS


@cache
def contract_types() -> tuple[type[Struct], ...]:
    """Every record type that is a whole record on some topic, in order of names."""
    types = {record_type for topic in TOPICS for record_type in topic.record_types} | set(DEAD_LETTER_TYPES)
    return tuple(sorted(types, key=lambda record_type: record_type.__name__))


@cache
def registered_schema(record_type: type[Struct]) -> dict[str, Any]:
    """Schema of a record type as JSON data, defaults included, documentation left out."""
    schema = _without_words(avro_schema(record_type))
    assert isinstance(schema, dict)
    return schema


def subject(record_type: type[Struct]) -> str:
    """Name under which the registry keeps a record type's versions."""
    return f"{NAMESPACE}.{record_type.__name__}"


def _without_words(schema: Any) -> Any:
    match schema:
        case {"fields": fields, "doc": _, **rest}:
            return {**rest, "fields": [{**field, "type": _without_words(field["type"])} for field in fields]}
        case {"items": items, **rest}:
            return {**rest, "items": _without_words(items)}
        case list():
            return [_without_words(branch) for branch in schema]
    return schema
