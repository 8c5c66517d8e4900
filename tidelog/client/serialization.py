"""Values and keys of programs as bytes, and back: serializers and deserializers.

They are functions of an object and a SerializationContext, as those of Confluent's clients are: the serializers of its
schema registry for Avro, Protobuf and JSON Schema are passed as they are (the extra `schema-registry`). A function with
one parameter, as kafka-python has them, gets the object alone; "json" and "string" name those that are built in.

Invariants: None stays None, which deletes a key of a compacted topic, unless a function of the program says otherwise.
Not here: when they are called (record_hooks.py, consumer.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter, iscoroutine, signature
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tidelog.errors import InvalidConfig, Retry, TidelogError
from tidelog.records.v2.record import Header


class SerializationContext(NamedTuple):
    """What is converted: the attributes have the names and values of Confluent's SerializationContext."""

    topic: str
    field: Literal["key", "value"]
    headers: list[Header]
    """Those of the record. A serializer may add to them (KIP-82)."""


Convert: TypeAlias = Callable[[Any, SerializationContext], Any]
SerializerOption: TypeAlias = Literal["json", "string"] | Callable[[Any], Any] | Convert | None


class SerializationFailed(TidelogError, code=1055, status="INVALID_ARGUMENT", retry=Retry.NEVER, written=False):
    """A serializer of the program raised, or returned something else than bytes. The record was not queued."""


class DeserializationFailed(TidelogError, code=1056, status="DATA_LOSS", retry=Retry.NEVER, written=None):
    """A deserializer of the program raised. The position is that of the record: calls raise this in its turn, until a
    `seek` moves beyond it (KIP-334)."""


def _to_json(value: object, _: SerializationContext) -> bytes | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _from_json(data: bytes | None, _: SerializationContext) -> object:
    return None if data is None else json.loads(data)


def _to_string(value: object, _: SerializationContext) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"it must be a str or None, not {type(value).__name__}")
    return None if value is None else value.encode()


def _from_string(data: bytes | None, _: SerializationContext) -> str | None:
    return None if data is None else data.decode()


SERIALIZERS: Final[Mapping[str, Convert]] = {"json": _to_json, "string": _to_string}
DESERIALIZERS: Final[Mapping[str, Convert]] = {"json": _from_json, "string": _from_string}


def convert_of(option: str, given: object, by_name: Mapping[str, Convert]) -> Convert | None:
    """Return the function of an option; None for None. option: its name. Raises InvalidConfig."""
    if given is None:
        return None
    if isinstance(given, str) and given in by_name:
        return by_name[given]
    if not callable(given):
        raise InvalidConfig(
            f'{option}={given!r}: use "json", "string", or a function of an object and its SerializationContext'
        )
    return _alone(given) if _takes_one(given) else given


def converted(convert: Convert, value: Any, topic: str, field: Literal["key", "value"], headers: list[Header]) -> Any:
    """Return the result of a function for the key or value of a record. Raises what it raises, and TypeError if it is
    asynchronous."""
    result = convert(value, SerializationContext(topic, field, headers))
    if iscoroutine(result):
        result.close()
        raise TypeError(
            "the function is asynchronous: pass one that returns its result, such as AvroSerializer in place of "
            "AsyncAvroSerializer"
        )
    return result


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument only."""
    try:
        parameters = list(signature(function).parameters.values())
    except ValueError:  # of a builtin without a signature, such as `str.encode` in some versions
        return True
    positional = [
        each for each in parameters if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        return False
    # A second parameter with a default is an option of the function (`json.loads(s, *, ...)`, `str.encode(encoding)`),
    # unless it is the context.
    needed = [each for each in positional if each.default is Parameter.empty or each.name in ("ctx", "context")]
    return len(needed) < 2


def _alone(function: Callable[[Any], Any]) -> Convert:
    def convert(value: Any, _: SerializationContext) -> Any:
        return function(value)

    return convert
