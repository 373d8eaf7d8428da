"""From librdkafka's settings, which every part is given, to what an aiokafka client needs."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SECURITY_PREFIXES = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
_UNDERSTOOD = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, kw_only=True)
class Sasl:
    """A user and how it proves itself. Never printed."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Sasl({self.mechanism})"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Where the brokers are and how to speak to them; None: without TLS, without SASL."""

    bootstrap: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None


def connection(config: Mapping[str, Any]) -> Connection:
    """Connection from librdkafka settings.

    Settings of TLS and SASL that cannot be carried over are refused with a ValueError that names them; what only tunes
    librdkafka is left aside. Values are never part of a message.
    """
    unknown = sorted(name for name in config if name.startswith(_SECURITY_PREFIXES) and name not in _UNDERSTOOD)
    if unknown:
        raise ValueError(f"the control agent cannot follow {', '.join(unknown)} of KAFKA_CONFIG")
    protocol = str(config.get("security.protocol", "plaintext")).lower()
    if protocol not in _PROTOCOLS:
        raise ValueError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
    return Connection(
        bootstrap=tuple(server.strip() for server in str(config["bootstrap.servers"]).split(",") if server.strip()),
        tls=_tls(config) if protocol.endswith("ssl") else None,
        sasl=_sasl(config) if protocol.startswith("sasl") else None,
    )


def _sasl(config: Mapping[str, Any]) -> Sasl:
    mechanism = str(config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))).upper()
    if mechanism not in _MECHANISMS:
        raise ValueError(f"sasl.mechanism: the control agent speaks {', '.join(_MECHANISMS)} only")
    for name in ("sasl.username", "sasl.password"):
        if not config.get(name):
            raise ValueError(f"{name} is missing for {mechanism}")
    return Sasl(mechanism=mechanism, username=str(config["sasl.username"]), password=str(config["sasl.password"]))


def _tls(config: Mapping[str, Any]) -> ssl.SSLContext:
    authority = config.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=authority)
        if config.get("ssl.certificate.location"):
            context.load_cert_chain(
                config["ssl.certificate.location"],
                keyfile=config.get("ssl.key.location"),
                password=config.get("ssl.key.password"),
            )
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"certificates of KAFKA_CONFIG: {error.strerror or error}") from None
    verified = str(config.get("enable.ssl.certificate.verification", "true")).lower()
    checks_name = str(config.get("ssl.endpoint.identification.algorithm", "https")).lower()
    if verified not in ("true", "false") or checks_name not in ("https", "none"):
        raise ValueError(
            "enable.ssl.certificate.verification must be true or false, "
            "ssl.endpoint.identification.algorithm https or none"
        )
    context.check_hostname = checks_name == "https" and verified == "true"
    context.verify_mode = ssl.CERT_REQUIRED if verified == "true" else ssl.CERT_NONE
    return context
