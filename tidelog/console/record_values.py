"""A key or a value of a record as a person reads it: JSON as JSON, text as text, other bytes in hexadecimal."""

from __future__ import annotations

import json
import re
from typing import Final

from tidelog.console.html import Html, element, lines

HEX_BYTES_MAX: Final = 1 << 10
HEX_WIDTH: Final = 16
DEPTH_SHOWN_MAX: Final = 20
"""Deeper levels are not indented further."""
INDENTED_TIMES_MAX: Final = 4
"""How much longer JSON may become: a hostile value would become many times as long, all of it spaces."""
INDENTED_CHARACTERS: Final = 2_000
"""Short values may become that long in any case."""

_WORDS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def shown(data: bytes | None, length: int | None = None) -> Html:
    """None and empty are told apart. length: of the whole value, of which `data` is the beginning; None: it is all."""
    if data is None:
        return element("em", "null", class_="absent")
    if not data:
        return element("em", "empty", class_="absent")
    return _told_length(data, len(data) if length is None else length)


def _told_length(data: bytes, length: int) -> Html:
    rest = element("small", f"the first {len(data)} of {length} bytes") if len(data) < length else None
    text = _text(data, is_cut=rest is not None)
    if text is None:
        dumped = hex_lines(data[:HEX_BYTES_MAX])
        hidden = length - min(len(data), HEX_BYTES_MAX)
        more = element("small", f"and {hidden} more bytes") if hidden else None
        return element("div", element("pre", lines(dumped), class_="hex"), more)
    found = json_lines(text) if rest is None else None
    if found is None:
        return element("div", element("pre", lines(text.split("\n")), class_="text"), rest)
    return element("pre", lines(found), class_="json")


def hex_lines(data: bytes) -> list[str]:
    """Sixteen bytes a line: position, hexadecimal, and the characters of ASCII."""
    found = []
    for at in range(0, len(data), HEX_WIDTH):
        part = data[at : at + HEX_WIDTH]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        found.append(f"{at:04x}  {part.hex(' '):<{HEX_WIDTH * 3}} {characters}")
    return found


def json_lines(text: str) -> list[str] | None:
    """An object or an array of JSON, indented; None if the text is neither, or becomes much longer by it. Every number,
    string and repeated key stays as it was written: it is no other document that is shown."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    found, depth = [""], 0
    words = _WORDS.findall(text)
    for index, word in enumerate(words):
        if word in "{[":
            depth += 1
            found[-1] += word
            if words[index + 1] not in "}]":
                found.append(_indent(depth))
        elif word in "}]":
            depth -= 1
            if words[index - 1] not in "{[":
                found.append(_indent(depth))
            found[-1] += word
        elif word == ",":
            found[-1] += word
            found.append(_indent(depth))
        else:
            found[-1] += ": " if word == ":" else word
    most = max(INDENTED_CHARACTERS, INDENTED_TIMES_MAX * len(text))
    return found if sum(map(len, found)) <= most else None


def _indent(depth: int) -> str:
    return "  " * min(depth, DEPTH_SHOWN_MAX)


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """The bytes as text; None if they are no text that a person could read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode("utf-8")  # cut within a character
    return text if text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable() else None
