"""The addresses of listeners: at which they are bound, at which others reach them, and which exclude each other."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, Final

from tidelog.settings import InvalidValue, Setting, ensure_distinct, texts
from tidelog.types import Endpoint


def endpoint_of(value: object) -> Endpoint:
    """Read `HOST:PORT`. Raises InvalidValue."""
    pattern = r"(?:\[([0-9a-fA-F:]+)\]|([^:\s\[\]]+)):(\d{1,5})"
    found = re.fullmatch(pattern, value) if isinstance(value, str) else None
    if found is None or int(found[3]) > 65535:
        raise InvalidValue(
            f"{value!r} is not an address; write HOST:PORT, for example 127.0.0.1:9192 (IPv6: [::1]:9192)"
        )
    return Endpoint(found[1] or found[2], int(found[3]))


def _listeners_of(items: list[str]) -> dict[str, Endpoint]:
    pairs = [item.partition("://") for item in items]
    for (name, _, address), item in zip(pairs, items, strict=True):
        if not name or not address:
            raise InvalidValue(
                f"{item!r} is not a listener; write NAME://HOST:PORT, for example KAFKA://127.0.0.1:9092"
            )
    ensure_distinct("listener", [name for name, _, _ in pairs])
    # As in Kafka, an address without a host stands for all of the machine.
    return {
        name: endpoint_of(f"0.0.0.0{address}" if address.startswith(":") else address) for name, _, address in pairs
    }


_LISTENERS: Final = texts(
    "NAME://HOST:PORT", _listeners_of, lambda at: ",".join(map("{}://{}".format, at, at.values()))
)
LISTENERS: Final[Setting[Any]] = Setting("listeners", MISSING, _LISTENERS)
"""the addresses to listen on, `NAME://HOST:PORT`; `NAME://:PORT`: all addresses of the machine; port 0: any free port.
`KAFKA` is for programs that use Kafka, `GRPC` for Tidelog's clients and nodes; other names have an entry in
`listener.security.protocol.map`. A client uses the addresses of the listener on which it connected first"""
ADVERTISED_LISTENERS: Final[Setting[Any]] = Setting("advertised.listeners", {}, _LISTENERS)
"""the addresses at which clients and other nodes connect, if they differ from the bound ones; required for a listener
on all addresses (`0.0.0.0`, `[::]`)"""


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


def _overlap(one: Endpoint, other: Endpoint) -> bool:
    """Whether a process cannot listen at both addresses: the port is the same, and so is the host, or one of them
    stands for all addresses."""
    same_host = one.host.lower() == other.host.lower()
    return one.port == other.port != 0 and (same_host or is_wildcard(one) or is_wildcard(other))


def address_mistake(
    bound: Mapping[str, Endpoint], given: Mapping[str, Endpoint], others: Mapping[str, Endpoint]
) -> tuple[str, str] | None:
    """The setting that gives listeners addresses which they cannot have, and why; None if there is none.

    Each listener has an address that others can reach, and no two have the same: a client would reach a listener of
    another protocol. bound: the addresses of the listeners, by name. given: those that they advertise, if they differ.
    others: further addresses at which the node listens, by the key of their setting.
    """
    for name in sorted(given):
        if name not in bound:
            return ADVERTISED_LISTENERS.name, f"no listener {name!r} in listeners; add it there, or remove it here"
    taken: dict[Endpoint, str] = {}
    for name, bind in bound.items():
        address = given.get(name, bind)
        if is_wildcard(address) or (name in given and address.port == 0):
            what = "clients and nodes cannot reach" if name in given else "missing: clients and nodes cannot reach"
            return ADVERTISED_LISTENERS.name, f"listener {name!r}: {what} {address}. Name a reachable address"
        other = taken.setdefault(address, name)
        if other != name and address.port != 0:
            declared = ADVERTISED_LISTENERS if {name, other} & given.keys() else LISTENERS
            return (
                declared.name,
                f"{address} is the address of two listeners, {other!r} and {name!r}; each needs its own",
            )
    everywhere = [*bound.items(), *others.items()]
    for at, (name, address) in enumerate(everywhere):
        for other, its_address in everywhere[:at]:
            if _overlap(address, its_address):
                key = name if name in others else LISTENERS.name
                return key, f"{name} at {address} has the port of {other} at {its_address}; give each its own"
    return None
