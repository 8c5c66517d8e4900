"""Reading and writing the fields of a key or a value, in the encodings of Kafka's message protocol.

    integers, UUID   big-endian, a UUID in 16 bytes
    plain            string: int16 length, UTF-8      bytes, array: int32 length      length -1 is null
    flexible         string, bytes, array: unsigned varint of the length plus 1       length 0 is null
                     each structure ends with its tagged fields: varint count, per field varint tag, varint size, bytes

Source: KIP-482 and Kafka's protocol guide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeVar
from uuid import UUID

from tidelog.errors import InvalidRequest

T = TypeVar("T")

STRING_BYTES_MAX: Final = 2**15 - 1
"""The longest string of a plain encoding."""

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UUID_BYTES: Final = 16
_VARINT_BITS_MAX: Final = 35
"""A varint of 32 bits has at most five bytes."""


_UUIDS_MAX: Final = 4_096
"""Topic ids that are kept as objects: each record names one, and few differ."""


@lru_cache(_UUIDS_MAX)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


class MalformedField(ValueError):
    """The bytes are not those of the field."""


class FieldReader:
    """Reads one field after another. Raises MalformedField for bytes that are not the field, or if they end early."""

    __slots__ = ("_data", "_end", "_flexible", "_position")

    def __init__(self, data: bytes, position: int, end: int, *, flexible: bool) -> None:
        self._data = data
        self._position = position
        self._end = end
        self._flexible = flexible

    def int8(self) -> int:
        value: int = self.numbers(_INT8)[0]
        return value

    def int16(self) -> int:
        value: int = self.numbers(_INT16)[0]
        return value

    def int32(self) -> int:
        value: int = self.numbers(_INT32)[0]
        return value

    def int64(self) -> int:
        value: int = self.numbers(_INT64)[0]
        return value

    def numbers(self, layout: Struct) -> tuple[Any, ...]:
        """Several integers at once. layout: big-endian."""
        position = self._position
        end = position + layout.size
        if end > self._end:
            raise MalformedField(f"the data end at byte {self._end}, within the numbers at byte {position}")
        self._position = end
        return layout.unpack_from(self._data, position)

    def uuid(self) -> UUID:
        return _uuid(self._take(_UUID_BYTES))

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise self._null("string")
        return value

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self._flexible else self.int16()
        if length == -1:
            return None
        start = self._position
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedField(f"the string at byte {start} is not UTF-8") from error

    def data(self) -> bytes:
        length = self._varint() - 1 if self._flexible else self.int32()
        if length == -1:
            raise self._null("byte field")
        return self._take(length)

    def array(self, read: Callable[[FieldReader], T]) -> tuple[T, ...]:
        """read: reads an element from this reader."""
        elements = self.nullable_array(read)
        if elements is None:
            raise self._null("array")
        return elements

    def nullable_array(self, read: Callable[[FieldReader], T]) -> tuple[T, ...] | None:
        count = self._varint() - 1 if self._flexible else self.int32()
        if count == -1:
            return None
        if not 0 <= count <= self._end - self._position:  # each element has at least one byte
            raise MalformedField(f"an array of {count} elements at byte {self._position} exceeds the data")
        return tuple([read(self) for _ in range(count)])

    def tagged(self, fields: Mapping[int, Callable[[FieldReader], Any]]) -> dict[int, Any]:
        """Read the tagged fields at the end of a structure; of a plain encoding there are none.

        fields: the known ones by tag. A field of another tag is passed over: that is what tags are for (KIP-482).
        """
        found: dict[int, Any] = {}
        if not self._flexible:
            return found
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            start = self._position
            self._take(size)
            if tag in fields:
                inner = FieldReader(self._data, start, self._position, flexible=True)
                found[tag] = fields[tag](inner)
                inner.finish()
        return found

    def finish(self) -> None:
        """Require that all bytes were read."""
        if self._position != self._end:
            raise MalformedField(f"{self._end - self._position} bytes follow the last field at byte {self._position}")

    def _take(self, length: int) -> bytes:
        start = self._position
        if not 0 <= length <= self._end - start:
            raise MalformedField(
                f"a field of {length} bytes at byte {start} exceeds the data, which end at {self._end}"
            )
        self._position = start + length
        return self._data[start : self._position]

    def _varint(self) -> int:
        start, value, shift = self._position, 0, 0
        if start < self._end and (byte := self._data[start]) < 0x80:
            self._position = start + 1
            return byte
        while self._position < self._end and shift < _VARINT_BITS_MAX:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 2**31:
                    break
                return value
            shift += 7
        raise MalformedField(f"the varint at byte {start} does not end, or exceeds 31 bits")

    def _null(self, kind: str) -> MalformedField:
        return MalformedField(f"the {kind} before byte {self._position} is null, which the format does not allow")


class FieldWriter:
    """Writes one field after another. Integers must be in the range of their field."""

    __slots__ = ("_flexible", "_out")

    def __init__(self, *, flexible: bool) -> None:
        self._out = bytearray()
        self._flexible = flexible

    def int8(self, value: int) -> None:
        self._out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._out += _INT64.pack(value)

    def uuid(self, value: UUID) -> None:
        self._out += value.bytes

    def string(self, value: str | None) -> None:
        """Raises InvalidRequest if the text is not valid Unicode, or too long for a plain encoding."""
        if value is None:
            self._length(-1, _INT16)
            return
        try:
            encoded = value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"{value[:40]!a} is not valid Unicode text: send valid UTF-8") from error
        if not self._flexible and len(encoded) > STRING_BYTES_MAX:
            raise InvalidRequest(
                f"the text {value[:40]!r}... has {len(encoded)} bytes, and its format allows {STRING_BYTES_MAX}: "
                "use a shorter one"
            )
        self._length(len(encoded), _INT16)
        self._out += encoded

    def data(self, value: bytes) -> None:
        self._length(len(value), _INT32)
        self._out += value

    def array(self, values: Iterable[T] | None, write: Callable[[FieldWriter, T], None]) -> None:
        """write: writes an element to this writer. values: None is null."""
        if values is None:
            self._length(-1, _INT32)
            return
        elements = tuple(values)
        self._length(len(elements), _INT32)
        for element in elements:
            write(self, element)

    def tagged(self, fields: Iterable[tuple[int, Callable[[FieldWriter], None]]] = ()) -> None:
        """End a structure with tagged fields, by ascending tag; a plain encoding has none."""
        if not self._flexible:
            return
        present = tuple(fields)
        self._varint(len(present))
        for tag, write in present:
            inner = FieldWriter(flexible=True)
            write(inner)
            self._varint(tag)
            self._varint(len(inner._out))
            self._out += inner._out

    def __bytes__(self) -> bytes:
        return bytes(self._out)

    def _length(self, length: int, plain: Struct) -> None:
        if self._flexible:
            self._varint(length + 1)
        else:
            self._out += plain.pack(length)

    def _varint(self, value: int) -> None:
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
