"""Decoding and encoding of one message in each of its versions, and the primitive fields that generated code calls.

    integers, UUID   big-endian, a UUID in 16 bytes
    plain            string: int16 length, UTF-8      bytes, array: int32 length      length -1 is null
    flexible         string, bytes, array: unsigned varint of the length plus 1       length 0 is null
                     each structure ends with its tagged fields: varint count, per field varint tag, varint size, bytes

Every read function takes the data and a position, and returns a value and the position behind it. No length is trusted:
nothing is allocated that the remaining data could not fill, and no more elements are made than the caller allows.
Source: KIP-482 and Kafka's protocol guide.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar
from uuid import UUID

T = TypeVar("T")
S = TypeVar("S", bound="Structure")

Data: TypeAlias = bytes | bytearray | memoryview
ReadLength: TypeAlias = Callable[[Data, int], tuple[int, int]]
WriteLength: TypeAlias = Callable[["Output", int], None]

STRING_BYTES_MAX: Final = 2**15 - 1
"""The longest string of a plain encoding."""

NO_UUID: Final = UUID(int=0)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_VARINT_BITS_MAX: Final = 35
"""A varint of 32 bits has at most five bytes."""

_UUIDS_MAX: Final = 4_096
"""UUIDs that are kept as objects: each committed offset names a topic id, and few differ."""

_ELEMENTS_MAX: Final = 2**31


class _Decoding(threading.local):
    """How many more elements of arrays, and tagged fields, the message that this thread decodes may have."""

    elements_left = _ELEMENTS_MAX


_decoding: Final = _Decoding()


class MalformedMessage(ValueError):
    """The bytes are not a message of this version."""


class UnencodableMessage(ValueError):
    """The message has a value that its version cannot express."""


class Structure:
    """A message, or a structure in it. Its fields never change; structures with equal fields are equal."""

    __slots__: tuple[str, ...] = ()
    _fields: ClassVar[Callable[[Any], Any]]

    def __init_subclass__(cls) -> None:
        cls._fields = attrgetter(*cls.__slots__)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these fields changed."""
        return type(self)(**{name: getattr(self, name) for name in self.__slots__} | changes)

    def __eq__(self, other: object) -> bool:
        fields = type(self)._fields
        return fields(self) == fields(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self)._fields(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Output(bytearray):
    """The bytes of a message while it is encoded. Record batches are not copied into it, but noted with their place."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[int, Data]] = []

    def parts(self) -> list[Data]:
        """The message as buffers to be sent one after another; record batches are the given objects."""
        encoded, parts, start = memoryview(self), list[Data](), 0
        for end, records in self.records:
            parts += (encoded[start:end], records)
            start = end
        return [*parts, encoded[start:]]


class MessageCodec(Generic[S]):
    """One message of Kafka in all its versions.

    readers, writers: by version; a message that is only sent has no readers, one that is only received no writers.
    flexible_from: the first version with the flexible encoding, of which the version of the header follows.
    """

    def __init__(
        self,
        message: type[S],
        api_key: int,
        *,
        readers: Mapping[int, Callable[[Data, int], tuple[S, int]]],
        writers: Mapping[int, Callable[[Output, S], None]],
        flexible_from: int = 2**15,
    ) -> None:
        self.message: Final = message
        self.api_key: Final = api_key
        """The type of the request, or of the record in a topic of a coordinator; -1 for headers."""
        self.flexible_from: Final = flexible_from
        self._readers = readers
        self._writers = writers

    @property
    def versions(self) -> Sequence[int]:
        """The versions that exist, ascending."""
        return tuple(self._readers or self._writers)

    def decode(
        self, data: Data, version: int, position: int = 0, *, elements_max: int = _ELEMENTS_MAX
    ) -> tuple[S, int]:
        """Return the message and the position behind it, since requests may have trailing bytes.

        elements_max: of all arrays together, with tagged fields: an element of one byte becomes an object of a hundred.
        Raises MalformedMessage for an unknown version and for bytes that are not a message of the version.
        """
        read = self._readers.get(version)
        if read is None:
            raise MalformedMessage(self._unknown(version, self._readers))
        _decoding.elements_left = elements_max
        try:
            return read(data, position)
        except MalformedMessage as error:
            raise self._malformed(version, error) from None
        except (struct.error, IndexError) as error:
            raise self._malformed(version, f"the data end within a field, after {len(data)} bytes") from error
        except UnicodeDecodeError as error:
            raise self._malformed(version, "a string is not UTF-8") from error
        except ValueError as error:  # of an enumeration
            raise self._malformed(version, error) from error

    def encode(self, value: S, version: int) -> bytes:
        """Return the bytes of a message. Raises UnencodableMessage if this version cannot express it."""
        out = self._encoded(value, version)
        return b"".join(out.parts()) if out.records else bytes(out)

    def encode_parts(self, value: S, version: int) -> list[Data]:
        """As `encode`, but record batches are not copied: each is a part of its own."""
        return self._encoded(value, version).parts()

    def _encoded(self, value: S, version: int) -> Output:
        write = self._writers.get(version)
        if write is None:
            raise UnencodableMessage(self._unknown(version, self._writers))
        out = Output()
        try:
            write(out, value)
        except struct.error as error:
            raise UnencodableMessage(f"{self._name} has a number out of range in version {version}: {error}") from error
        except UnicodeEncodeError as error:
            raise UnencodableMessage(f"{error.object[:40]!a} is not valid Unicode text: send valid UTF-8") from error
        return out

    @property
    def _name(self) -> str:
        return self.message.__name__

    def _unknown(self, version: int, functions: Mapping[int, object]) -> str:
        return f"{self._name} has no version {version}, only {', '.join(map(str, functions)) or 'the other direction'}"

    def _malformed(self, version: int, cause: object) -> MalformedMessage:
        return MalformedMessage(f"{self._name} in version {version}: {cause}")


# --- reading ----------------------------------------------------------------------------------------------------


@lru_cache(_UUIDS_MAX)
def uuid_of(data: bytes) -> UUID:
    return UUID(bytes=data)


def read_uuid(data: Data, at: int) -> tuple[UUID, int]:
    end = _end(data, at, 16)
    return uuid_of(bytes(data[at:end])), end


def read_varint(data: Data, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = shift = 0
    for position in range(at, at + _VARINT_BITS_MAX // 7):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 2**31:
            return value, position + 1
        shift += 7
    raise MalformedMessage(f"the varint at byte {at} does not end, or exceeds 31 bits")


def read_length(data: Data, at: int) -> tuple[int, int]:
    """Length of bytes or an array in a plain encoding; -1 is null."""
    return _INT32.unpack_from(data, at)[0], at + 4


def read_compact_length(data: Data, at: int) -> tuple[int, int]:
    """Length of a string, bytes or an array in a flexible encoding; -1 is null."""
    length, at = read_varint(data, at)
    return length - 1, at


def read_nullable_string(data: Data, at: int) -> tuple[str | None, int]:
    length, at = _INT16.unpack_from(data, at)[0], at + 2
    if length == -1:
        return None, at
    end = _end(data, at, length)
    return str(data[at:end], "utf-8"), end


def read_nullable_compact_string(data: Data, at: int) -> tuple[str | None, int]:
    length, at = read_varint(data, at)
    if length == 0:
        return None, at
    end = _end(data, at, length - 1)
    return str(data[at:end], "utf-8"), end


def read_string(data: Data, at: int) -> tuple[str, int]:
    text, end = read_nullable_string(data, at)
    if text is None:
        raise _null(at)
    return text, end


def read_compact_string(data: Data, at: int) -> tuple[str, int]:
    text, end = read_nullable_compact_string(data, at)
    if text is None:
        raise _null(at)
    return text, end


def read_nullable_bytes(data: Data, at: int, length_at: ReadLength) -> tuple[bytes | None, int]:
    length, at = length_at(data, at)
    if length == -1:
        return None, at
    end = _end(data, at, length)
    return bytes(data[at:end]), end


def read_bytes(data: Data, at: int, length_at: ReadLength) -> tuple[bytes, int]:
    value, end = read_nullable_bytes(data, at, length_at)
    if value is None:
        raise _null(at)
    return value, end


def read_records(data: Data, at: int, length_at: ReadLength) -> tuple[memoryview | None, int]:
    """Record batches as a view of the data."""
    length, at = length_at(data, at)
    if length == -1:
        return None, at
    end = _end(data, at, length)
    return memoryview(data)[at:end], end


def read_nullable_array(
    data: Data, at: int, length_at: ReadLength, read: Callable[[Data, int], tuple[T, int]]
) -> tuple[tuple[T, ...] | None, int]:
    """read: reads an element, which has at least one byte."""
    count, at = length_at(data, at)
    if count == -1:
        return None, at
    _check_count(data, at, count, 1)
    elements = []
    for _ in range(count):
        element, at = read(data, at)
        elements.append(element)
    return tuple(elements), at


def read_array(
    data: Data, at: int, length_at: ReadLength, read: Callable[[Data, int], tuple[T, int]]
) -> tuple[tuple[T, ...], int]:
    elements, end = read_nullable_array(data, at, length_at, read)
    if elements is None:
        raise _null(at)
    return elements, end


def read_nullable_numbers(data: Data, at: int, length_at: ReadLength, kind: str) -> tuple[tuple[Any, ...] | None, int]:
    """kind: the character of the numbers in `struct`."""
    count, at = length_at(data, at)
    if count == -1:
        return None, at
    size = struct.calcsize(f">{kind}")
    _check_count(data, at, count, size)
    return struct.unpack_from(f">{count}{kind}", data, at), at + count * size


def read_numbers(data: Data, at: int, length_at: ReadLength, kind: str) -> tuple[tuple[Any, ...], int]:
    numbers, end = read_nullable_numbers(data, at, length_at, kind)
    if numbers is None:
        raise _null(at)
    return numbers, end


def read_nullable_structure(data: Data, at: int, read: Callable[[Data, int], tuple[T, int]]) -> tuple[T | None, int]:
    """A byte, negative for null, and the structure."""
    return (None, at + 1) if data[at] >= 0x80 else read(data, at + 1)


def read_tag_count(data: Data, at: int) -> tuple[int, int]:
    """The number of tagged fields, each of which has at least two bytes."""
    count, at = read_varint(data, at)
    if count:  # rarely
        _check_count(data, at, count, 2)
    return count, at


def read_tag(data: Data, at: int) -> tuple[int, int, int]:
    """Return the tag of a tagged field, and where its value begins and ends."""
    tag, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return tag, at, _end(data, at, size)


def check_tag(tag: int, at: int, end: int) -> None:
    """Require that the value of a known tag is as long as its size says."""
    if at != end:
        raise MalformedMessage(f"the field of tag {tag} ends at byte {at}, by its size at byte {end}")


def skip_tags(data: Data, at: int) -> int:
    """The position behind tagged fields that are all unknown: a later version may add some (KIP-482)."""
    if data[at] == 0:  # nearly always
        return at + 1
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, _, at = read_tag(data, at)
    return at


def _end(data: Data, at: int, length: int) -> int:
    """The end of a field. Slices would silently be short."""
    end = at + length
    if length < 0 or end > len(data):
        raise MalformedMessage(f"a field of {length} bytes at byte {at} exceeds the data, which end at {len(data)}")
    return end


def _check_count(data: Data, at: int, count: int, element_bytes_min: int) -> None:
    if count < 0 or count * element_bytes_min > len(data) - at:
        raise MalformedMessage(f"an array of {count} elements at byte {at} exceeds the data")
    _decoding.elements_left -= count
    if _decoding.elements_left < 0:
        raise MalformedMessage(f"an array of {count} elements at byte {at} exceeds the limit of elements in all")


def _null(at: int) -> MalformedMessage:
    return MalformedMessage(f"the field at byte {at} is null, which its version does not allow")


# --- writing ----------------------------------------------------------------------------------------------------


def not_null(value: T | None, field: str) -> T:
    if value is None:
        raise UnencodableMessage(f"{field} is null, which this version does not allow")
    return value


def inexpressible(field: str) -> UnencodableMessage:
    return UnencodableMessage(f"{field} has a value, and this version has no such field: use a later version")


def write_varint(out: Output, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_length(out: Output, length: int) -> None:
    out += _INT32.pack(length)


def write_compact_length(out: Output, length: int) -> None:
    write_varint(out, length + 1)


def write_string(out: Output, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
        return
    encoded = text.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise UnencodableMessage(
            f"the text {text[:40]!r}... has {len(encoded)} bytes, and its format allows {STRING_BYTES_MAX}: "
            "use a shorter one"
        )
    out += _INT16.pack(len(encoded))
    out += encoded


def write_compact_string(out: Output, text: str | None) -> None:
    if text is None:
        out.append(0)
        return
    encoded = text.encode()
    write_varint(out, len(encoded) + 1)
    out += encoded


def write_uuid(out: Output, value: UUID) -> None:
    out += value.bytes


def write_bytes(out: Output, value: bytes | None, write_size: WriteLength) -> None:
    if value is None:
        write_size(out, -1)
        return
    write_size(out, len(value))
    out += value


def write_records(out: Output, records: Data | None, write_size: WriteLength) -> None:
    """The length; the records themselves stay where they are until the message is sent."""
    if records is None:
        write_size(out, -1)
        return
    size = len(records)
    write_size(out, size)
    if size:  # most partitions of a consumer at its end have none, and each part costs the sender some calls
        out.records.append((len(out), records))


def write_array(
    out: Output, elements: Sequence[T] | None, write_size: WriteLength, write: Callable[[Output, T], None]
) -> None:
    if elements is None:
        write_size(out, -1)
        return
    write_size(out, len(elements))
    for element in elements:
        write(out, element)


def write_numbers(out: Output, numbers: Sequence[float] | None, write_size: WriteLength, kind: str) -> None:
    if numbers is None:
        write_size(out, -1)
        return
    write_size(out, len(numbers))
    out += struct.pack(f">{len(numbers)}{kind}", *numbers)


def write_nullable_structure(out: Output, value: T | None, write: Callable[[Output, T], None]) -> None:
    if value is None:
        out.append(0xFF)
        return
    out.append(1)
    write(out, value)


def write_tags(out: Output, tags: Sequence[tuple[int, Output]]) -> None:
    """tags: ascending, with the bytes of their values."""
    write_varint(out, len(tags))
    for tag, value in tags:
        write_varint(out, tag)
        write_varint(out, len(value))
        out += value
