"""How driver and executors connect to the cluster: options that the source and the sink share.

Pure. Files have the same paths on the driver and on each executor: an option names them, no option contains a secret,
because Spark shows options in plans and logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.options import checked_client_id
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import InvalidConfig
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.spark.options.option_values import stripped
from tidelog.types import Isolation

BOOTSTRAP: Final = "tidelog.bootstrap.servers"
CLIENT_ID: Final = "tidelog.client.id"
RACK: Final = "tidelog.client.rack"
ISOLATION: Final = "tidelog.isolation.level"
PROTOCOL: Final = "tidelog.security.protocol"
_OF_TLS: Final = ("tidelog.ssl.ca.file", "tidelog.ssl.certificate.file", "tidelog.ssl.key.file")
_USERNAME: Final = "tidelog.sasl.username"
_PASSWORD_FILE: Final = "tidelog.sasl.password.file"  # noqa: S105 - the name of an option
_TOKEN_FILE: Final = "tidelog.sasl.token.file"  # noqa: S105 - the name of an option
_OF_SASL: Final = ("tidelog.sasl.mechanism", _USERNAME, _PASSWORD_FILE, _TOKEN_FILE)
_PROTOCOLS: Final = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""Whether connections have TLS, and whether they have SASL."""

CONNECTION_NAMES: Final = (BOOTSTRAP, CLIENT_ID, PROTOCOL, *_OF_TLS, *_OF_SASL)
"""The names of all options of connections, of the source and of the sink."""
FETCH_NAMES: Final = (RACK, ISOLATION)
"""The names of the options of connections that only a reader has."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions(ClusterConnection):
    """The cluster and the credentials for it, of the driver and of all executors. A sink has no use for the rest."""

    rack: str = ""
    """The rack of the executors; empty for none (KIP-392)."""
    isolation: Isolation = Isolation.READ_COMMITTED
    """With READ_COMMITTED a query ends at the first transaction that is open, and records of aborted transactions are
    left out."""


def connection_options(given: Mapping[str, str]) -> ConnectionOptions:
    """The options of connections. given: by canonical names (option_names.py).

    Raises InvalidConfig with the option, its value and the valid values.
    """
    bootstrap = stripped(given, BOOTSTRAP)
    if not bootstrap:
        raise InvalidConfig(
            f'no cluster given: set the option "{BOOTSTRAP}" to host:port of one or more nodes, separated by commas'
        )
    return ConnectionOptions(
        bootstrap=bootstrap,
        tls=_tls(given),
        sasl=_sasl(given),
        client_id=checked_client_id(stripped(given, CLIENT_ID)),
        rack=stripped(given, RACK),
        isolation=_isolation(stripped(given, ISOLATION)),
    )


def _isolation(text: str) -> Isolation:
    """The isolation level. Unlike Kafka's source, a query reads committed transactions only, unless it says otherwise:
    what a producer has aborted must not appear in a table by default."""
    match text.lower():
        case "" | "read_committed":
            return Isolation.READ_COMMITTED
        case "read_uncommitted":
            return Isolation.READ_UNCOMMITTED
    raise InvalidConfig(f"option {ISOLATION!r} is {text!r}; it must be read_committed or read_uncommitted")


def _protocol(given: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether connections have TLS, and whether they have SASL: by `security.protocol`, or, if it is not given, if an
    option of it is given. An option of what the protocol has not is refused: it would have no effect."""
    protocol = stripped(given, PROTOCOL)
    tls, sasl = (any(stripped(given, name) for name in names) for names in (_OF_TLS, _OF_SASL))
    if not protocol:
        return tls, sasl
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(f"option {PROTOCOL!r} is {protocol!r}; it must be one of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = _PROTOCOLS[protocol]
    if tls and not has_tls:
        with_tls = "SASL_SSL" if has_sasl else "SSL"
        raise InvalidConfig(
            f"option {PROTOCOL!r} is {protocol}, and files for TLS are given; set {with_tls}, or remove them"
        )
    if sasl and not has_sasl:
        raise InvalidConfig(
            f"option {PROTOCOL!r} is {protocol}, and options of SASL are given; set SASL_{protocol}, or remove them"
        )
    return has_tls, has_sasl


def _tls(given: Mapping[str, str]) -> Tls | None:
    has_tls, _ = _protocol(given)
    return Tls(*(stripped(given, name) or None for name in _OF_TLS)) if has_tls else None


def _sasl(given: Mapping[str, str]) -> Sasl | None:
    """The user, if there is SASL."""
    _, has_sasl = _protocol(given)
    if not has_sasl:
        return None
    mechanism, username, file, token_file = (stripped(given, name) for name in _OF_SASL)
    if token_file:
        return Sasl(username, password_file=file or None, mechanism=mechanism, token_file=token_file)
    if not username or not file:
        raise InvalidConfig(f"SASL needs both options {_USERNAME!r} and {_PASSWORD_FILE!r}, or {_TOKEN_FILE!r} alone")
    return Sasl(username, password_file=file, mechanism=mechanism)
