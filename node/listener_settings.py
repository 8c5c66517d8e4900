"""Settings of listeners: the protocol of each, and TLS.

A setting of TLS holds for all listeners with TLS; `listener.name.NAME.KEY` is its value for one listener, as in Kafka.
Not here: the files themselves (tidelog/security/tls_files.py), which listeners there are (node/config.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

from node.security.principals import MappingRule, parse_rules, show_rules
from tidelog.security.tls_files import Tls
from tidelog.settings import InvalidValue, Setting, millis, setting, settings_of, text, texts
from tidelog.settings import SettingKind as Kind
from tidelog.types import Millis
from tidelog.values import dataclass

PREFIX: Final = "listener.name."
"""Begins the keys of one listener; the name of the listener in lower case follows, then the key."""


class ListenerProtocol(Enum):
    """What a listener speaks, how its callers are identified, and whether connections are encrypted. Kafka's security
    protocols have Kafka's names; each has a twin with gRPC."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"
    GRPC = "GRPC"
    GRPC_SSL = "GRPC_SSL"
    GRPC_SASL_PLAINTEXT = "GRPC_SASL_PLAINTEXT"
    GRPC_SASL_SSL = "GRPC_SASL_SSL"

    @property
    def is_kafka(self) -> bool:
        """Whether the listener speaks Kafka's protocol; otherwise it speaks gRPC."""
        return not self.value.startswith("GRPC")

    @property
    def with_grpc(self) -> ListenerProtocol:
        """The protocol that has the same security, and gRPC."""
        word = "GRPC" if self is ListenerProtocol.PLAINTEXT else f"GRPC_{self.value}"
        return ListenerProtocol(word) if self.is_kafka else self

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.value.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether callers prove their identity by a SASL mechanism."""
        return "SASL" in self.value


OF_NAMES: Final[Mapping[str, ListenerProtocol]] = {
    **ListenerProtocol.__members__,
    "KAFKA": ListenerProtocol.PLAINTEXT,
}
"""The protocols of listeners whose name says it."""


def _client_auth(value: object) -> bool:
    if value == "requested":
        raise InvalidValue(
            "gRPC cannot ask for a certificate without requiring one; use none or required, or two listeners"
        )
    if value not in ("none", "required"):
        raise ValueError(value)
    return value == "required"


def _rules(value: object) -> tuple[MappingRule, ...]:
    try:
        rules = parse_rules(text().check(value))
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    if not rules:
        raise InvalidValue("names no rule; write DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]")
    return rules


def _protocols_of(items: list[str]) -> dict[str, ListenerProtocol]:
    found: dict[str, ListenerProtocol] = {}
    for item in items:
        name, _, protocol = item.partition(":")
        if not name or not protocol:
            raise InvalidValue(f"{item!r} names no protocol; write NAME:PROTOCOL, for example KAFKA:SSL")
        if protocol not in ListenerProtocol.__members__:
            raise InvalidValue(f"{item!r}: the protocol must be one of {', '.join(ListenerProtocol.__members__)}")
        if name in found:
            raise InvalidValue(f"names listener {name!r} twice; name it once")
        found[name] = ListenerProtocol[protocol]
    return found


def _shown(protocols: Mapping[str, ListenerProtocol]) -> str:
    return ",".join(f"{name}:{protocol.value}" for name, protocol in protocols.items())


PROTOCOLS: Final[Setting[Any]] = Setting(
    "listener.security.protocol.map", {}, texts("NAME:PROTOCOL", _protocols_of, _shown)
)
"""the protocol of each listener, `NAME:PROTOCOL`. `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` and `SASL_SSL` are Kafka's, for
programs that use Kafka ([kafka.md](kafka.md)); `GRPC`, `GRPC_SSL`, `GRPC_SASL_PLAINTEXT` and `GRPC_SASL_SSL` are the
same with gRPC, for Tidelog's clients and nodes. A listener with the name of a protocol needs no entry, nor does
`KAFKA`, which is `PLAINTEXT`"""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """TLS of one listener. The listener between nodes uses the same files for its own connections to other nodes."""

    certificate_file: str = setting("ssl.certificate.file", "", text())
    """the file with the certificate of the node and its chain, in PEM form. Files are read again when they change"""
    key_file: str = setting("ssl.key.file", "", text())
    """the file with the private key of that certificate, in PEM form, without a password"""
    ca_file: str = setting("ssl.ca.file", "", text())
    """the file with the certificates of the authorities that sign the certificates of clients; on the listener between
    nodes also those of the other nodes"""
    requires_certificate: bool = setting(
        "ssl.client.auth",
        False,
        Kind("none or required", _client_auth, _client_auth, lambda value: "required" if value else "none"),
    )
    """`required`: callers must have a certificate of an authority in `ssl.ca.file`, and their principal is its subject;
    `none`: they are `User:ANONYMOUS`; with SASL the principal is the user in both cases. Kafka's `requested` is not
    possible with gRPC"""
    mapping_rules: tuple[MappingRule, ...] = setting(
        "ssl.principal.mapping.rules", (MappingRule(),), Kind("rules", _rules, _rules, show_rules)
    )
    """how the subject of a certificate becomes a principal: rules as in Kafka, `RULE:PATTERN/REPLACEMENT/[LU]` or
    `DEFAULT` (the whole name), separated by commas; the first one that matches holds"""
    age_ms_max: Millis = setting("ssl.connection.max.age.ms", 3_600_000, millis(1_000, 31_536_000_000))
    """how long a connection may last; then the other side connects again and proves its identity again. Open streams
    are ended 10 s later"""

    @property
    def files(self) -> Tls:
        """The files of the listener."""
        return Tls(self.ca_file or None, self.certificate_file, self.key_file)


OF_LISTENERS: Final[Mapping[str, Setting[Any]]] = {each.name: each for each in settings_of(ListenerTls).values()}
"""The settings that a listener may have of its own, by key."""


def protocol_mistake(names: Collection[str], protocols: Mapping[str, ListenerProtocol]) -> str:
    """Why the protocols cannot be those of the listeners; empty if they can. names: of all listeners."""
    for name in sorted(protocols):
        if name not in names:
            return f"no listener {name!r} in listeners; add it there, or remove it here"
    for name in names:
        if name not in protocols and name not in OF_NAMES:
            return (
                f"no protocol for the listener {name!r}: add {name}:PLAINTEXT for programs that use Kafka, or "
                f"{name}:GRPC for Tidelog's clients and nodes, or name the listener KAFKA or GRPC"
            )
    return ""
