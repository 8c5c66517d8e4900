"""What a user may pass to a client, checked: a value outside its range is refused with its name and what is allowed."""

from __future__ import annotations

from typing import Final

from tidelog.errors import InvalidConfig, InvalidRequiredAcks, UnsupportedCompressionType
from tidelog.types import Acks, Codec

_ACKS: Final = {
    "all": Acks.ALL,
    "-1": Acks.ALL,
    "1": Acks.LEADER,
    "0": Acks.NONE,
    -1: Acks.ALL,
    1: Acks.LEADER,
    0: Acks.NONE,
}


def acks_of(value: str | int | Acks) -> Acks:
    """ "all" or -1, 1, 0. Raises InvalidRequiredAcks."""
    try:
        return _ACKS[value]
    except KeyError:
        raise InvalidRequiredAcks(f'acks={value!r}: use "all" (or -1), 1 or 0') from None


def codec_of(value: str | Codec) -> Codec:
    """A codec by its name. Raises UnsupportedCompressionType."""
    if isinstance(value, Codec):
        return value
    try:
        return Codec[value.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise UnsupportedCompressionType(f"compression={value!r}: use one of {names}") from None


def at_least(least: int, **options: object) -> None:
    """Raise InvalidConfig for an option below `least`."""
    for name, value in options.items():
        if not isinstance(value, int) or value < least:
            raise InvalidConfig(f"{name}={value!r}: a whole number, {least} or more, is needed")
