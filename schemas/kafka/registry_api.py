"""The few requests that are made to a Schema Registry, over Confluent's client, and how it is configured.

Confluent's client is loaded only where a registry is configured, so that nobody else needs to have it.
"""

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from schemas.kafka.admin import BrokerError
from schemas.kafka.config import read_properties

REGISTRY_URL_ENV: Final = "SCHEMA_REGISTRY_URL"
REGISTRY_CONFIG_ENV: Final = "SCHEMA_REGISTRY_CONFIG"
COMPATIBILITY: Final = "FULL_TRANSITIVE"

_NUMBERS: Final = frozenset({"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity"})
# A request that hangs is given up soon, and asked again by us: a retry inside the client would only hide it.
_DEFAULTS: Final[Mapping[str, Any]] = {"timeout": 2.0, "max.retries": 0}
# They log each request with its whole URL.
_TALKATIVE: Final = ("httpx", "httpx2", "httpcore", "httpcore2")
# Confluent's codes; a 404 without one comes from something else that answers there.
_NO_SUCH: Final = frozenset({40401, 40402, 40403})
_MAX_REASON_CHARS: Final = 300


class RegistryError(BrokerError):
    """The Schema Registry is away, or refused a request; one line for the user, without a secret."""


class RegistryAwayError(RegistryError):
    """The Schema Registry does not answer as one, or not us: it may later."""


class NoSuchSchemaError(RegistryError):
    """The Schema Registry has no such schema."""


class SchemaRefusedError(RegistryError):
    """The Schema Registry does not take a schema: it is incompatible with what is registered."""


class NotOursToRegisterError(RegistryError):
    """The Schema Registry lacks a schema, and this user may not register it: others may, and readers need not."""


class _ForbiddenError(RegistryAwayError):
    """The Schema Registry answers, but not to this user."""


@dataclass(frozen=True, kw_only=True)
class RegistrySettings:
    """Settings of the client. ``url`` may be shown; ``client`` holds secrets and is no part of the representation."""

    url: str
    client: Mapping[str, Any] = field(repr=False)


def registry_settings(environ: Mapping[str, str] | None = None) -> RegistrySettings | None:
    """Settings from ``SCHEMA_REGISTRY_URL`` and the file named by ``SCHEMA_REGISTRY_CONFIG``; None without a URL.

    The file holds ``name=value`` lines of the client's settings, such as ``basic.auth.user.info=user:password`` and
    ``ssl.ca.location=/path``. Raises ValueError naming what is wrong; values are never part of the message.
    """
    environ = os.environ if environ is None else environ
    urls = [url.strip() for url in environ.get(REGISTRY_URL_ENV, "").split(",") if url.strip()]
    if not urls:
        return None
    path = environ.get(REGISTRY_CONFIG_ENV)
    given = read_properties(Path(path), REGISTRY_CONFIG_ENV) if path else {}
    client: dict[str, Any] = {**_DEFAULTS, **given}
    for name in _NUMBERS & client.keys():
        try:
            client[name] = float(client[name])
        except ValueError:
            raise ValueError(f"{REGISTRY_CONFIG_ENV}: {name} must be a number") from None
    plain = []
    for url in urls:
        shown, user_info = _without_user_info(url)
        plain.append(shown)
        if user_info:
            client.setdefault("basic.auth.user.info", user_info)
    client["url"] = ",".join(plain)
    return RegistrySettings(url=client["url"], client=client)


class RegistryApi:
    """Requests to one registry. Each waits for its answer, a few seconds at most."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Take the settings; raises ValueError for one that is wrong, or when the client is not installed."""
        self.url = settings.url
        self._client: Any = _new_client(settings)

    def check(self) -> None:
        """Return when the registry answers us; raises RegistryAwayError."""
        self._ask(lambda client: client.get_compatibility())

    def schema_text(self, schema_id: int) -> str:
        """The schema of an id as it was registered; raises NoSuchSchemaError or RegistryAwayError."""
        schema = self._ask(lambda client: client.get_schema(schema_id))
        # What is known is kept, within bounds, by the caller: the client's own cache of ids has none.
        self._client.clear_caches()
        text, kind = schema.schema_str, schema.schema_type or "AVRO"
        if not isinstance(text, str):
            raise RegistryAwayError(f"{self.url} does not answer as a Schema Registry")
        return text if kind == "AVRO" else f'"{kind} schema"'

    def find(self, subject: str, text: str) -> int:
        """Id of a schema under a subject; raises NoSuchSchemaError where it is not there, or RegistryAwayError."""
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, "AVRO")
        return int(self._ask(lambda client: client.lookup_schema(subject, schema)).schema_id)

    def find_or_register(self, subject: str, text: str) -> int:
        """Id of a schema under a subject, registered when it is new there.

        Who brings a subject's first schema also sets that its versions must all be able to read each other. Raises
        SchemaRefusedError, NotOursToRegisterError or RegistryAwayError.
        """
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, "AVRO")
        with suppress(NoSuchSchemaError):
            return self.find(subject, text)
        is_first = not self._has(subject)
        try:
            schema_id = int(self._ask(lambda client: client.register_schema(subject, schema)))
        except _ForbiddenError as error:
            raise NotOursToRegisterError(
                f"{error}: run `intertidal topics create` as a user who may register"
            ) from None
        if is_first:
            # The schema is in; who may register and not configure leaves the rule to others.
            with suppress(_ForbiddenError):
                self._ask(lambda client: client.set_compatibility(subject, COMPATIBILITY))
        return schema_id

    def _has(self, subject: str) -> bool:
        try:
            return bool(self._ask(lambda client: client.get_versions(subject)))
        except NoSuchSchemaError:
            return False

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request(self._client)
        except SchemaRegistryError as error:
            raise self._translated(error) from None
        except Exception as error:  # noqa: BLE001  # the client lets through whatever its HTTP and TLS libraries raise
            # Its words may hold an address with a password; its kind says enough.
            raise RegistryAwayError(f"no answer from the Schema Registry at {self.url}: {_kind(error)}") from None

    def _translated(self, error: Any) -> RegistryError:
        status, code = error.http_status_code, error.error_code
        if status == 404 and code in _NO_SUCH:
            return NoSuchSchemaError(f"the Schema Registry at {self.url} has none (code {code})")
        if status in (409, 422):
            reason = " ".join(str(error.error_message).split())[:_MAX_REASON_CHARS]
            return SchemaRefusedError(f"the Schema Registry at {self.url} refuses it (HTTP {status}): {reason}")
        kind = _ForbiddenError if status in (401, 403) else RegistryAwayError
        return kind(f"the Schema Registry at {self.url} answers with HTTP {status}")


class LookingApi:
    """A registry of which only what is there is asked: nothing is registered by whoever does but look."""

    def __init__(self, api: RegistryApi) -> None:
        self._api = api

    def schema_text(self, schema_id: int) -> str:
        """As RegistryApi.schema_text."""
        return self._api.schema_text(schema_id)

    def find_or_register(self, subject: str, text: str) -> int:
        """Id of a schema under a subject; raises NotOursToRegisterError where it is not there."""
        try:
            return self._api.find(subject, text)
        except NoSuchSchemaError as error:
            raise NotOursToRegisterError(f"{error}: run `intertidal topics create`") from None


def _new_client(settings: RegistrySettings) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ValueError(
            f"{REGISTRY_URL_ENV} is set, but {error.name} is not installed: pip install 'intertidal[registry]'"
        ) from None
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        return SchemaRegistryClient(dict(settings.client))
    except OSError as error:
        # A certificate or key that cannot be read; the words of the TLS library name no secret, but are of no use.
        raise ValueError(f"{REGISTRY_CONFIG_ENV}: {_kind(error)}: {error.strerror}") from None


def _without_user_info(url: str) -> tuple[str, str]:
    """An address without its user and password, and these as ``user:password``; raises ValueError for no address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{REGISTRY_URL_ENV} must be http://host:port or https://host:port, with a path where needed")
    place = f"[{host}]" if ":" in host else host
    shown = urlunsplit((parts.scheme, place if port is None else f"{place}:{port}", parts.path.rstrip("/"), "", ""))
    user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return shown, user_info


def _kind(error: BaseException) -> str:
    return type(error).__name__
