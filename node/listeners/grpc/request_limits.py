"""Limit on the fields of one message, checked before the message is parsed."""

from __future__ import annotations

from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor

from tidelog.errors import InvalidRequest

FIELDS_MAX: Final = 100_000
"""Fields of one message, including those of nested entries: several times what the largest correct request has. An
empty entry takes two bytes on the wire and about 500 once parsed: a large message of them would cost gigabytes."""

_VARINT, _FIXED64, _SIZED, _GROUP, _GROUP_END, _FIXED32 = range(6)


def ensure_few_fields(data: bytes, kind: Descriptor) -> None:
    """Raise InvalidRequest if a serialized message has more than `FIELDS_MAX` fields. Invalid bytes are accepted: the
    parser rejects them."""
    if len(data) <= 2 * FIELDS_MAX:  # a field takes at least two bytes
        return
    left, parts = FIELDS_MAX, [(kind, 0, len(data))]
    while parts:
        kind, at, end = parts.pop()
        while at < end:
            left -= 1
            if left < 0:
                raise InvalidRequest(
                    f"the request of {len(data)} bytes has more than {FIELDS_MAX} fields: split it into "
                    "several requests"
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
    """Whether a message of this kind can cost more memory than its bytes."""
    return any(field.is_repeated or field.message_type is not None for field in kind.fields)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number encoded at `at`, and the position after it. Raises IndexError at the end of the data."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 or shift >= 63:
            return number, at
        shift += 7
