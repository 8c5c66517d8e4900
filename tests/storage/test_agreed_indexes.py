"""The file of agreed transaction indexes: it is read as written, or ignored as a whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.files.file_system import read_file, write_file
from storage.segment.agreed_indexes import (
    AGREEMENT_FILE,
    Agreement,
    read_agreements,
    remove_agreements,
    write_agreements,
)
from testbed.fake_disk import FakeDisk
from tidelog.types import Offset

NUMBERS = st.integers(0, 2**63 - 1)
AGREEMENTS = st.dictionaries(
    st.builds(Offset, NUMBERS), st.builds(Agreement, NUMBERS, NUMBERS, NUMBERS, st.integers(-1, 2**63 - 1)), max_size=4
)


def disk() -> FakeDisk:
    made = FakeDisk()
    made.make_directory("/log")
    return made


@given(AGREEMENTS)
def test_a_written_file_is_read_back(agreements: dict[Offset, Agreement]) -> None:
    files = disk()
    assert read_agreements(files, "/log") == {}
    write_agreements(files, "/log", agreements)
    assert read_agreements(files, "/log") == agreements
    assert remove_agreements(files, "/log")
    assert not remove_agreements(files, "/log")


@given(AGREEMENTS, st.data())
def test_a_damaged_file_is_ignored(agreements: dict[Offset, Agreement], data: st.DataObject) -> None:
    files = disk()
    write_agreements(files, "/log", agreements)
    written = bytearray(read_file(files, f"/log/{AGREEMENT_FILE}") or b"")
    if data.draw(st.booleans()):
        del written[data.draw(st.integers(0, len(written) - 1)) :]
    else:
        bit = data.draw(st.integers(0, len(written) * 8 - 1))
        written[bit // 8] ^= 1 << bit % 8
    write_file(files, f"/log/{AGREEMENT_FILE}", bytes(written))
    assert read_agreements(files, "/log") == {}


@given(st.binary(max_size=100))
def test_any_bytes_are_parsed_or_ignored(data: bytes) -> None:
    files = disk()
    write_file(files, f"/log/{AGREEMENT_FILE}", data)
    assert read_agreements(files, "/log") == {}
