"""SASLprep: user names and passwords that look alike become the same text (RFC 4013, a profile of stringprep)."""

from __future__ import annotations


def saslprep(text: str) -> str:
    """The prepared text. Raises ValueError, without the text, for characters that RFC 4013 prohibits, and for code
    points that Unicode 3.2 does not assign (a stored string, RFC 3454 section 7)."""
    if text.isascii() and text.isprintable():
        return text
    import stringprep  # with the tables of Unicode: most names and passwords need none
    import unicodedata

    prohibited = (
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
    # Map: spaces other than the ASCII one become it (table C.1.2), and what has no width is left out (B.1).
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    # The RFC names Unicode 3.2: a later version could prepare a stored password differently.
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for character in prepared:
        if stringprep.in_table_a1(character) or any(is_in_table(character) for is_in_table in prohibited):
            raise ValueError("contains a control character or another character that RFC 4013 (SASLprep) prohibits")
    # Text from right to left (D.1) must be alone, and at both ends: else two texts could be displayed as the same one.
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not stringprep.in_table_d1(prepared[0])
        or not stringprep.in_table_d1(prepared[-1])
    ):
        raise ValueError("mixes text from right to left with text from left to right (RFC 3454, section 6)")
    return prepared
