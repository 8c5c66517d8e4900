"""Messages as the values that users see: a field of a dataclass is read from the field of the message with its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from tidelog.errors import TidelogError
from tidelog.protocol.status import from_proto

Description = TypeVar("Description")


def read_message(kind: type[Description], message: Any, **given: Any) -> Description:
    """Return the dataclass of `kind` in a message, by the type hints. given: fields that are not read from the field of
    the message with the same name."""
    readers = _readers(kind)  # type: ignore[arg-type]  # mypy does not see that a class is hashable
    return kind(**given, **{name: read(message) for name, read in readers.items() if name not in given})


@cache
def _readers(kind: type) -> Mapping[str, Callable[[Any], object]]:
    """For each field of a dataclass: the function that reads it from a message."""
    return {name: _reader(name, hint) for name, hint in get_type_hints(kind).items()}


def _reader(name: str, hint: Any) -> Callable[[Any], object]:
    if hint == TidelogError | None:
        return lambda message: from_proto(message.error) if message.HasField("error") else None
    field = attrgetter(name)
    is_tuple = get_origin(hint) is tuple
    convert = _converter(get_args(hint)[0] if is_tuple else hint)
    if is_tuple:
        return (
            (lambda message: tuple(map(convert, field(message)))) if convert else lambda message: tuple(field(message))
        )
    return (lambda message: convert(field(message))) if convert else field


def _converter(hint: Any) -> Callable[[Any], object] | None:
    """The conversion of one value; None if a value of the message is used as it is."""
    kind = getattr(hint, "__supertype__", hint)
    if kind is UUID:
        return lambda value: UUID(bytes=value or bytes(16))
    return partial(read_message, kind) if isinstance(kind, type) and is_dataclass(kind) else None
