"""SASLprep: user names and passwords that look alike become the same text (RFC 4013, a profile of stringprep)."""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """The prepared text. Raises ValueError, without the text, for characters that RFC 4013 prohibits, and for code
    points that Unicode 3.2 does not assign (a stored string, RFC 3454 section 7)."""
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if stringprep.in_table_a1(each) or any(prohibited(each) for prohibited in _PROHIBITED):
            raise ValueError("contains a control character or another character that RFC 4013 (SASLprep) prohibits")
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not stringprep.in_table_d1(prepared[0])
        or not stringprep.in_table_d1(prepared[-1])
    ):
        raise ValueError("mixes text from right to left with text from left to right (RFC 3454, section 6)")
    return prepared
