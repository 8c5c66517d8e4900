"""Values that a schema registry's serializer has written: with the id of the schema in front, and in Protobuf with the
place of the message in the schema. Pure.

    0 | schema id (4 bytes) | Protobuf: message indexes | the value

The message indexes lead from the messages of the file to the one that was written: `[1, 0]` is the first message inside
the second one. They are zigzag varints, their number first; a single 0 stands for `[0]`. Serializers count the entries
of maps among the messages inside another one or not, as the schema was registered with them or not: an index that means
another message in either way of counting is not believed.
Source: the wire format of Confluent's schema registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidelog.jobs.encoded_values import ProtobufReader
from tidelog.jobs.fitted_values import FittedValue, ValueReader

REGISTRY_MAGIC: Final = b"\0"
"""Begins a value that has the id of its schema, a number of 4 bytes, in front."""
_VARINT_BYTES: Final = 5
"""The longest varint of a number of 32 bits."""


def framed_reader(inner: ValueReader, schema_id: int) -> ValueReader:
    """A reader of values that have this id in front."""
    prefix = REGISTRY_MAGIC + schema_id.to_bytes(4)
    return FramedMessages(inner, prefix) if isinstance(inner, ProtobufReader) else FramedReader(inner, prefix)


class FramedReader:
    """Reads values that have the id of their schema in front."""

    def __init__(self, inner: ValueReader, prefix: bytes) -> None:
        self.schema = inner.schema
        self._inner, self._prefix = inner, prefix

    def fit(self, value: bytes) -> FittedValue:
        """The fields of what follows the id. A value with another id was written by another schema."""
        if not value.startswith(self._prefix):
            found = value[: len(self._prefix)].hex()
            return FittedValue(None, f"it begins with 0x{found}, not with the id of the schema")
        return self._fit_behind(value, len(self._prefix))

    def _fit_behind(self, value: bytes, start: int) -> FittedValue:
        return self._inner.fit(value[start:])


class FramedMessages(FramedReader):
    """Reads messages that have the id of their schema and their place in it in front."""

    def __init__(self, inner: ProtobufReader, prefix: bytes) -> None:
        super().__init__(inner, prefix)
        self._message = inner.descriptor
        self._right: set[tuple[int, ...]] = set()
        """Message indexes that mean this message: at most two, by the ways of counting."""

    def _fit_behind(self, value: bytes, start: int) -> FittedValue:
        place = read_indexes(value, start)
        if place is None:
            return FittedValue(None, "it does not say which message of the schema it is: its message indexes end early")
        indexes, behind = place
        if indexes in self._right:
            return self._inner.fit(value[behind:])
        found = sorted({each.full_name for each in _messages_at(self._message.file, indexes)})
        if found == [self._message.full_name]:
            self._right.add(indexes)
            return self._inner.fit(value[behind:])
        shown = f"message {list(indexes)} of the schema, {' or '.join(found) or 'which it does not have'}"
        return FittedValue(None, f"it is {shown}, not {self._message.full_name}")


def read_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int] | None:
    """The message indexes at a byte of a value, and the byte behind them; None if there are none."""
    count, at = _varint(value, start)
    if count == 0:
        return (0,), at
    indexes: list[int] = []
    while 0 < count - len(indexes) <= len(value) - at:
        index, at = _varint(value, at)
        if index < 0:
            return None
        indexes.append(index)
    return (tuple(indexes), at) if len(indexes) == count else None


def _varint(value: bytes, start: int) -> tuple[int, int]:
    """The number at a byte, and the byte behind it; -1 if there is none, or a negative one."""
    number = 0
    for place, byte in enumerate(value[start : start + _VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (-1 if number & 1 else number >> 1), start + place + 1
    return -1, len(value)


def _messages_at(file: Any, indexes: tuple[int, ...]) -> Iterator[Any]:
    """The messages that indexes mean, by both ways of counting."""
    for counts_entries in (False, True):
        inside, found = list(file.message_types_by_name.values()), None
        for index in indexes:
            found = inside[index] if index < len(inside) else None
            if found is None:
                break
            inside = [each for each in found.nested_types if counts_entries or not _is_entry(each)]
        if found is not None and not _is_entry(found):
            yield found


def _is_entry(message: Any) -> bool:
    """Whether it is what a map of the message around it consists of."""
    return bool(message.GetOptions().map_entry)
