"""Security settings of listeners: the protocol of each, TLS, and which addresses stand for all of the machine.

A setting of TLS holds for all listeners with TLS; `listener.name.NAME.KEY` is its value for one listener, as in Kafka.
Not here: the files themselves (tidelog/security/tls_files.py), which listeners there are (node/config.py).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from node.security.principals import MappingRule, parse_rules, show_rules
from tidelog.security.tls_files import Tls
from tidelog.settings import InvalidValue, Setting, millis, setting, settings_of, text, texts
from tidelog.settings import SettingKind as Kind
from tidelog.types import Endpoint, Millis

PREFIX: Final = "listener.name."
"""Begins the keys of one listener; the name of the listener in lower case follows, then the key."""


class SecurityProtocol(Enum):
    """How callers of a listener are identified and whether the connection is encrypted. Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether callers prove their identity by a SASL mechanism."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


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


def _protocols_of(items: list[str]) -> dict[str, SecurityProtocol]:
    found: dict[str, SecurityProtocol] = {}
    for item in items:
        name, _, protocol = item.partition(":")
        if not name or not protocol:
            raise InvalidValue(f"{item!r} names no protocol; write NAME:PROTOCOL, for example client:SSL")
        if protocol not in SecurityProtocol.__members__:
            raise InvalidValue(f"{item!r}: the protocol must be one of {', '.join(SecurityProtocol.__members__)}")
        if name in found:
            raise InvalidValue(f"names listener {name!r} twice; name it once")
        found[name] = SecurityProtocol[protocol]
    return found


def _shown(protocols: Mapping[str, SecurityProtocol]) -> str:
    return ",".join(f"{name}:{protocol.value}" for name, protocol in protocols.items())


PROTOCOLS: Final[Setting[Any]] = Setting(
    "listener.security.protocol.map", {}, texts("NAME:PROTOCOL", _protocols_of, _shown)
)
"""the protocol of each listener: `NAME:PLAINTEXT`, `NAME:SSL`, `NAME:SASL_PLAINTEXT` or `NAME:SASL_SSL`. A listener
that is not named has the protocol of its name (`SSL://...`), else PLAINTEXT"""


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
    `none`: they are `User:ANONYMOUS`; with SASL_SSL the principal is the user in both cases. Kafka's `requested` is not
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


_ZEROS: Final = re.compile(r"(?:0[xX])?0+(?:\.(?:0[xX])?0+){0,3}")
"""0.0.0.0 as `inet_aton` reads it: one to four parts, each octal, decimal or hexadecimal."""


def is_wildcard(bind: Endpoint) -> bool:
    """Whether the address stands for all addresses of the machine, in any spelling that the system accepts: `0.0.0.0`,
    `0`, `::`, `0:0:0:0:0:0:0:0`. No other machine can connect to it."""
    try:
        address = ipaddress.ip_address(bind.host)
    except ValueError:
        return _ZEROS.fullmatch(bind.host) is not None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_unspecified


def kafka_mistake(names: Sequence[str], bound: Collection[str], of_nodes: Sequence[str]) -> str:
    """Why listeners cannot speak Kafka's protocol; empty if they can. bound: the names of all listeners. of_nodes:
    those that nodes use among themselves."""
    for name in names:
        if name not in bound:
            return f"no listener {name!r} in listeners; add it there, or name one of {', '.join(sorted(bound))}"
        if name in of_nodes:
            return f"nodes use the listener {name!r} among themselves, by gRPC; add another one for Kafka's protocol"
    return ""
