"""Text that somebody else chose, for terminals, logs and command lines: an id may have any character."""

from __future__ import annotations

import json
import shlex


def printable(text: str) -> str:
    """The text with every character that is not printable as its escape of JSON. One line stays one line, no terminal
    is controlled, and a JSON document keeps its meaning."""
    if text.isprintable():
        return text
    return text.translate({ord(each): json.dumps(each)[1:-1] for each in set(text) if not each.isprintable()})


def shell_word(text: str) -> str:
    """The text as one word of a command for people to copy, in printable characters."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_in_quotes(each) for each in text) + "'"


def _in_quotes(character: str) -> str:
    if character.isprintable() and character not in "'\\":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
