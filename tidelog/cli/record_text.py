"""Records as text: JSON lines, the format strings of kcat, and escapes in delimiters.

A record that is printed as JSON and read again is the same, byte for byte: text stands for its bytes in UTF-8, other
bytes are `{"base64": "..."}`, null is null and "" is empty.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.output import plain
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.errors import InvalidRecord
from tidelog.records.v2.record import Header
from tidelog.standard_streams import json_line
from tidelog.types import NO_TIMESTAMP

Part: TypeAlias = Callable[[ConsumerRecord], bytes]

_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    """None: by the key."""
    timestamp: int | None = None
    """Milliseconds since 1970; -1: none; None: now."""
    topic: str | None = None
    """None: the command names it."""


def unescaped(option: str, text: str) -> bytes:
    r"""The bytes of a text with escapes: \n \t \r \0 \\ and \x00 to \xff. Raises WrongUsage."""

    def replaced(match: re.Match[bytes]) -> bytes:
        found = match[1]
        if len(found) == 3:
            return bytes([int(found[1:], 16)])
        if found not in _ESCAPES:
            name = found.decode(errors="replace")
            raise WrongUsage(rf"{option} {text!r}: unknown escape \{name}; use \n \t \r \0 \\ or \x00 to \xff")
        return _ESCAPES[found]

    return _ESCAPE.sub(replaced, text.encode("utf-8", "surrogateescape"))


def record_as_json(record: ConsumerRecord) -> str:
    """A record as one line: what `record_of_json` takes."""
    return json_line(plain({name: getattr(record, name) for name in _FIELDS}))


def record_of_json(line: bytes) -> WrittenRecord:
    """The record of one line, as `record_as_json` writes it; its offset does not count. Raises InvalidRecord."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InvalidRecord(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidRecord("not a record: lists and objects are nested too deeply") from None
    if not isinstance(found, dict):
        raise InvalidRecord(
            "no JSON object: write one with value, and key, headers, partition, timestamp, topic if needed"
        )
    unknown = [name for name in found if name not in _FIELDS]
    if unknown:
        raise InvalidRecord(f"unknown field {unknown[0]!r}: use {', '.join(_FIELDS)}")
    topic, timestamp = found.get("topic"), _number(found, "timestamp")
    if topic is not None and not isinstance(topic, str):
        raise InvalidRecord("topic is the name of one, as a text")
    return WrittenRecord(
        _bytes("value", found.get("value")),
        _bytes("key", found.get("key")),
        _headers(found.get("headers") or []),
        _number(found, "partition"),
        NO_TIMESTAMP if timestamp is None and "timestamp" in found else timestamp,
        topic,
    )


def _number(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidRecord(f"{name} {value!r} is no whole number")
    return value


def _bytes(name: str, given: Any) -> bytes | None:
    """The bytes of a text, of {"base64": ...}, or null."""
    if given is None:
        return None
    try:
        if isinstance(given, str):
            return given.encode()
        if isinstance(given, dict) and list(given) == ["base64"] and isinstance(given["base64"], str):
            return base64.b64decode(given["base64"], validate=True)
    except UnicodeEncodeError:
        raise InvalidRecord(f'{name} is no text in Unicode: write bytes as {{"base64": "..."}}') from None
    except binascii.Error as error:
        raise InvalidRecord(f"{name} is not base64: {error}") from None
    found = "a list" if isinstance(given, list) else "another object" if isinstance(given, dict) else json.dumps(given)
    raise InvalidRecord(f'{name} must be a text, null, or {{"base64": "..."}}, not {found[:60]}')


def _headers(given: Any) -> tuple[Header, ...]:
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], str) for each in pairs
    ):
        raise InvalidRecord('headers must be a list of pairs: [["name", "value"], ...]')
    return tuple((name, _bytes(f"header {name!r}", value)) for name, value in pairs)


def compiled_format(text: str, null: bytes) -> Callable[[ConsumerRecord], bytes]:
    r"""A function that writes a record by a format string of kcat. Raises WrongUsage.

    %t topic, %p partition, %o offset, %T timestamp (ms; -1: none), %k key, %s value, %h headers (name=value,...), %K %S
    lengths in bytes (-1: null), %R length of the value as four bytes (big-endian, as %S), %% a percent sign; \n \t ...
    as in delimiters. null: stands for a key or value that is null.
    """
    parts: list[Part] = []
    for literal, letter in re.findall(r"([^%]+)|%(.?)", text, re.DOTALL):
        if literal:
            parts.append(_constant(unescaped("--format", literal)))
            continue
        part = _constant(b"%") if letter == "%" else _tokens(null).get(letter)
        if part is None:
            raise WrongUsage(f"--format: %{letter} is unknown; use %t %p %o %T %k %K %s %S %R %h or %%")
        parts.append(part)
    return lambda record: b"".join([part(record) for part in parts])


def _constant(data: bytes) -> Part:
    return lambda _record: data


def _tokens(null: bytes) -> dict[str, Part]:
    return {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % (NO_TIMESTAMP if record.timestamp is None else record.timestamp),
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "K": lambda record: b"%d" % _length(record.key),
        "S": lambda record: b"%d" % _length(record.value),
        "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
        "h": lambda record: b",".join(
            name.encode("utf-8", "surrogateescape") + b"=" + (null if value is None else value)
            for name, value in record.headers
        ),
    }


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)
