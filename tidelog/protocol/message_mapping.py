"""Derives the conversion between a dataclass and a protobuf message from the type hints and the message descriptor.

The fields of both have the same names. The type hint selects the conversion:

    int, float, str, bool, bytes  the same value
    an IntEnum                 its number; a number that it does not have raises ValueError
    UUID                       16 bytes
    tuple, frozenset           a repeated field; a frozenset is written in order
    tuple | None               a message with one repeated field; or a repeated field, where empty stands for None
    another type | None        an optional field; or a plain field, where its default stands for None
    Mapping[str, str]          a map, read in the order of its keys
    Mapping[str, Endpoint]     repeated Listener, sorted by name
    a dataclass                a message; or, without a field of that name, further fields of the enclosing message

A NewType converts as its supertype. A mapping is built once, at import; a field without a counterpart in the message or
without a conversion raises TypeError there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache, lru_cache
from operator import attrgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, NewType, TypeAlias, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tidelog.cluster_descriptions import NodeDescription
from tidelog.errors import TidelogError
from tidelog.protocol.status import address_from_proto, address_to_proto, from_proto, to_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Endpoint, NodeAddress

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V", bound="DataclassInstance")
M = TypeVar("M", bound=Message)

Convert: TypeAlias = Callable[[Any], Any]

UUIDS_CACHED: Final = 1_024
"""Metadata records repeat the ids of a few topics and directories. A lookup takes 0.1 us, a new UUID 0.8 us."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Conversion of one field: `write` returns what a message constructor takes, `read` takes the attribute of the
    message. None: the value is used as it is."""

    write: Convert | None = None
    read: Convert | None = None


class MessageMapping(Generic[V]):
    """Converts values of a dataclass to the fields of a message and back.

    to_fields(value): the arguments for the constructor of the message, which omits those that are None.
    from_message(message, **given): the value in a message; given: the fields that the message does not have. Raises
        ValueError for an id that does not have 16 bytes, and what the converters raise.
    """

    def __init__(
        self,
        value_type: type[V],
        message: Descriptor | None,
        *,
        given: Collection[str] = (),
        converters: Mapping[object, Converter] | None = None,
    ) -> None:
        """given: fields of the dataclass that the message does not have. converters: used instead of the derived ones,
        by field name or by type."""
        assert message is not None, f"{value_type.__name__} is mapped to a field that is not a message"
        overrides, hints = converters or {}, get_type_hints(value_type)
        scope: dict[str, Any] = {"make": value_type}
        writes, reads = [], []
        for name in (field.name for field in fields(value_type)):
            if name in given:
                reads.append(name)
                continue
            field = message.fields_by_name.get(name)
            if field is None:
                if not is_dataclass(hints[name]):
                    raise TypeError(f"message {message.full_name} has no field {name} of {value_type.__name__}")
                part = MessageMapping(hints[name], message, converters=converters)
                scope[f"write_{name}"], scope[f"read_{name}"] = part.to_fields, part.from_message
                writes.append(f"**write_{name}(value.{name})")
                reads.append(f"read_{name}(message)")
                continue
            hint, is_optional = _without_none(hints[name])
            converter = overrides.get(name) or _derive(hint, field, overrides)
            scope[f"write_{name}"], scope[f"read_{name}"] = converter.write, converter.read
            write = f"value.{name}" if converter.write is None else f"write_{name}(value.{name})"
            read = f"message.{name}" if converter.read is None else f"read_{name}(message.{name})"
            if is_optional:
                write = f"None if value.{name} is None else {write}"
                is_present = f"message.HasField({name!r})" if field.has_presence else f"message.{name}"
                read = f"{read} if {is_present} else None"
            writes.append(f"{name!r}: {write}")
            reads.append(read)
        # One expression for all fields, as the dataclasses module does: a loop over the fields is 20 to 35 % slower.
        self.to_fields: Callable[[V], dict[str, Any]] = _function("value", f"{{{', '.join(writes)}}}", scope)
        self.from_message: Callable[..., V] = _function(
            ", ".join(["message", *given]), f"make({', '.join(reads)})", scope
        )


def read_message(kind: type[V], message: Any, **given: Any) -> V:
    """The value of a dataclass in a message. given: the fields that are not read from the message. Raises ValueError
    for an id that does not have 16 bytes."""
    value: V = _mapping_of(kind, message.DESCRIPTOR, frozenset(given)).from_message(message, **given)
    return value


def write_message(kind: type[M], value: DataclassInstance, **more: Any) -> M:
    """The message of a value. more: fields of the message that the value does not have."""
    return kind(**_mapping_of(type(value), kind.DESCRIPTOR, frozenset()).to_fields(value), **more)


@cache
def _mapping_of(kind: type[V], message: Descriptor, given: frozenset[str]) -> MessageMapping[V]:
    return MessageMapping(kind, message, given=given)


def _function(parameters: str, expression: str, scope: dict[str, Any]) -> Any:
    return eval(f"lambda {parameters}: {expression}", scope)  # noqa: S307 - made of field names only


def _without_none(hint: Any) -> tuple[Any, bool]:
    """The hint without `| None`, and whether it contained None."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return (kinds[0], True) if NoneType in get_args(hint) else (hint, False)


def _derive(hint: Any, field: FieldDescriptor, overrides: Mapping[object, Converter]) -> Converter:
    for known in (overrides, _CONVERTERS):
        if hint in known:
            return known[hint]
    if isinstance(hint, NewType):
        return _derive(hint.__supertype__, field, overrides)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return Converter(int, hint)
    collection = get_origin(hint)
    if collection in (tuple, frozenset):
        return _repeated(collection, get_args(hint)[0], field, overrides)
    if isinstance(hint, type) and is_dataclass(hint):
        nested = MessageMapping(hint, field.message_type, converters=overrides)
        return Converter(nested.to_fields, nested.from_message)
    raise TypeError(f"no conversion is known between {hint} and the field {field.full_name}")


def _repeated(
    collection: Callable[[Iterable[Any]], Any], item: Any, field: FieldDescriptor, overrides: Mapping[object, Converter]
) -> Converter:
    if field.is_repeated:
        one = _derive(item, field, overrides)
        write, read = one.write, one.read
        write_each: Convert | None = None if write is None else lambda values: list(map(write, values))
        return Converter(
            write_each if collection is tuple else lambda values: (write_each or _same)(sorted(values)),
            collection if read is None else lambda values: collection(map(read, values)),
        )
    assert field.message_type is not None, f"{field.full_name} is neither repeated nor a message"
    (wrapped,) = field.message_type.fields
    items, name, get = _repeated(collection, item, wrapped, overrides), wrapped.name, attrgetter(wrapped.name)
    write_items, read_items = items.write or _same, items.read or _same
    return Converter(lambda values: {name: write_items(values)}, lambda message: read_items(get(message)))


def _same(values: Any) -> Any:
    return values


@lru_cache(UUIDS_CACHED)
def _uuid(raw: bytes) -> UUID:
    if len(raw) != 16:
        raise ValueError(f"an id has 16 bytes, this one {len(raw)}")
    return UUID(bytes=raw)


def _write_node(node: NodeDescription) -> dict[str, Any]:
    address = address_to_proto(NodeAddress(node.node_id, node.endpoint, node.rack))
    return {**_NODE.to_fields(node), "address": address}


def _read_node(message: admin_pb2.NodeStatus) -> NodeDescription:
    address = address_from_proto(message.address)
    return _NODE.from_message(message, node_id=address.node_id, endpoint=address.endpoint, rack=address.rack)


def _write_listeners(listeners: Mapping[str, Endpoint]) -> list[dict[str, Any]]:
    return [{"name": name, "host": at.host, "port": at.port} for name, at in sorted(listeners.items())]


def _read_listeners(listeners: Iterable[Any]) -> dict[str, Endpoint]:
    return {listener.name: Endpoint(listener.host, listener.port) for listener in listeners}


_CONVERTERS: Final[dict[object, Converter]] = {
    int: Converter(),
    float: Converter(),
    str: Converter(),
    bool: Converter(),
    bytes: Converter(),
    UUID: Converter(attrgetter("bytes"), _uuid),
    TidelogError: Converter(to_proto, from_proto),
    NodeDescription: Converter(_write_node, _read_node),
    Mapping[str, str]: Converter(None, lambda items: dict(sorted(items.items()))),
    Mapping[str, Endpoint]: Converter(_write_listeners, _read_listeners),
}

_NODE: Final = MessageMapping(NodeDescription, admin_pb2.NodeStatus.DESCRIPTOR, given=("node_id", "endpoint", "rack"))
