"""How much one request may ask for: bounds that no honest caller meets, so that a faulty one costs a bounded turn of
the loop and a bounded amount of memory."""

from __future__ import annotations

from collections.abc import Sized
from functools import cache
from typing import TYPE_CHECKING, Final

from tidelog.errors import InvalidRequest

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

ENTRIES_MAX: Final = 10_000
"""Entries of one request: the partitions of the largest topic. Refusing so many takes some 100 ms."""

UNARY_FETCH_BYTES_MAX: Final = 64 << 20
"""Records that the partitions of one unary fetch share: half of the largest message."""

FIRST_ANSWER_BYTES: Final = 1 << 20
"""Records in the first answer on a consumer's stream, or one batch; each that is taken doubles it. A reader that never
takes an answer costs no more."""

SLOW_READER_MS: Final = 10_000
"""A stream whose answer was not taken for so long is closed where others wait for memory."""

UNSENT_MAX: Final = 1_000
"""Answers that wait for a stream to take them, before no more is read from it."""

FIELDS_MAX: Final = 100_000
"""Fields of one message, where entries have entries theirs too: several times what the largest honest request has. An
empty entry is two bytes on the wire and some 500 once parsed: a large message of these would cost gigabytes."""

_VARINT, _FIXED64, _SIZED, _GROUP, _GROUP_END, _FIXED32 = range(6)


def ensure_few_fields(data: bytes, kind: Descriptor) -> None:
    """Raises InvalidRequest where the bytes of a message hold more fields than any request needs, before anything is
    made of them. Where bytes are no message, the parser says so."""
    if len(data) <= 2 * FIELDS_MAX:  # a field takes two bytes at least
        return
    left, parts = FIELDS_MAX, [(kind, 0, len(data))]
    while parts:
        kind, at, end = parts.pop()
        while at < end:
            left -= 1
            if left < 0:
                raise InvalidRequest(
                    f"the request of {len(data)} bytes has more than {FIELDS_MAX} fields: send several requests"
                )
            try:
                tag, at = _varint(data, at)
                wire_type = tag & 7
                if wire_type == _SIZED:
                    size, at = _varint(data, at)
                    field = kind.fields_by_number.get(tag >> 3)
                    nested = None if field is None else field.message_type
                    if nested is not None and _has_entries(nested):
                        parts.append((nested, at, min(at + size, end)))
                    at += size
                elif wire_type == _VARINT:
                    _, at = _varint(data, at)
                elif wire_type == _FIXED64:
                    at += 8
                elif wire_type == _FIXED32:
                    at += 4
                elif wire_type not in (_GROUP, _GROUP_END):
                    break
            except IndexError:
                break


@cache
def _has_entries(kind: Descriptor) -> bool:
    """Can a message of this kind cost more than its bytes?"""
    return any(field.is_repeated or field.message_type is not None for field in kind.fields)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number written at `at`, and where it ends. Raises IndexError behind the end."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 or shift >= 63:
            return number, at
        shift += 7


def ensure_few(entries: Sized, what: str) -> None:
    """Raises InvalidRequest where a request has more entries than any needs."""
    if len(entries) > ENTRIES_MAX:
        raise InvalidRequest(f"the request has {len(entries)} {what}: at most {ENTRIES_MAX} fit, send several requests")
