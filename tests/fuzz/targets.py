"""What is fuzzed: every parser of `tidelog.records`, each as a function of bytes.

A target returns, or raises TidelogError; anything else is a finding. Where a compiled twin is built, both run and must
agree on value and error. The limit on decompressed bytes keeps a bomb from hiding as a slow input.
Left to others: making up inputs (__main__.py), crashes, hangs and memory (the process that runs a target).
"""

from __future__ import annotations

import importlib
import io
import lzma
import struct
import tarfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tidelog.errors import TidelogError
from tidelog.records import (
    HEADER_BYTES,
    AppendRules,
    RecordBatch,
    Rules,
    analyze,
    assign_offsets,
    crc32c,
    decode_control,
    iter_batches,
    walk_headers,
)
from tidelog.records.arrow_columns import ColumnDecoder
from tidelog.records.v2 import columns, record_check
from tidelog.records.v2.compression import decompress
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, LOG_OVERHEAD, MAGIC_AT
from tidelog.records.v2.record import Record, decode_records
from tidelog.types import Codec, Millis, Offset


def compiled(name: str) -> Any:
    """A compiled module of the codec, None where it was not built."""
    try:
        return importlib.import_module(f"tidelog.records.{name}")
    except ImportError:
        return None


_columns, _reader = compiled("_columns"), compiled("_reader")

VECTORS: Final = Path(__file__).parent.parent / "vectors"
DECOMPRESSED_BYTES_MAX: Final = 1 << 20
NOW: Final = 1_700_000_000_000
SEED_BYTES_MAX: Final = 2048


def headers(data: bytes) -> None:
    for header in walk_headers(data):
        assert header.end <= len(data)
    list(walk_headers(data, partial_tail="raise"))


def batches(data: bytes) -> None:
    """All that a reader does, with the checksums made right, so that what lies behind them is reached."""
    for batch in iter_batches(with_right_checksums(data)):
        batch.ensure_valid()
        listed = outcome(partial(batch.record_list, max_bytes=DECOMPRESSED_BYTES_MAX))
        single = outcome(partial(one_by_one, batch))
        assert listed == single
        repr(batch)


def one_by_one(batch: RecordBatch) -> list[Record]:
    return list(batch.records(max_bytes=DECOMPRESSED_BYTES_MAX))


def appends(data: bytes) -> None:
    """All that a leader does with what a producer sent."""
    right = bytearray(with_right_checksums(data))
    analysis = analyze(right, batch_bytes_max=1 << 20)
    if analysis.batch_count:
        rules = AppendRules(
            codec=Codec.GZIP if len(data) % 2 else None,
            magic=len(data) % 3,
            key_required=len(data) % 5 == 0,
            decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
        )
        assigned = assign_offsets(right, analysis, rules, first_offset=7, leader_epoch=3, now=NOW)
        assert analyze(assigned.records).record_count in (assigned.record_count, None)


def records(data: bytes) -> None:
    """The payload of a batch: two bytes say how many records there should be, the rest are they."""
    count, payload = int.from_bytes(data[:2], "big", signed=True), data[2:]
    expected = outcome(lambda: list(decode_records(payload, count, 5, NOW)))
    if _reader is not None:
        assert outcome(lambda: list(_reader.RecordReader(payload, count, 5, NOW))) == expected
        assert outcome(lambda: _reader.record_list(bytearray(payload), count, 5, NOW)) == expected


def checks(data: bytes) -> None:
    count, payload = int.from_bytes(data[:2], "big", signed=True), data[2:]
    facts: dict[str, Any] = {
        "base_offset": 5,
        "last_offset_delta": count - 1,
        "base_timestamp": NOW,
        "rules": Rules(key_required=True, timestamp_min=NOW - 10, timestamp_max=NOW + 10, consecutive=count % 2 == 0),
    }
    expected = outcome(lambda: record_check.check_records(payload, count, **facts))
    if _reader is not None:
        assert outcome(lambda: _reader.check_records(payload, count, **facts)) == expected


def arrow(data: bytes) -> None:
    """Payloads of two batches, one behind the other, into columns."""
    import pyarrow as pa

    count, payload = int.from_bytes(data[:2], "big", signed=True), data[2:]
    half = len(payload) // 2
    buffers: list[Any] = [columns.ColumnsBuffer(columns.NAMES)]
    if _columns is not None:
        buffers.append(_columns.ColumnsBuffer(columns.NAMES))
    found = []
    for buffer in buffers:
        errors = [
            outcome(partial(buffer.add, part, count, 5, NOW, None, 0, 6, 60))
            for part in (payload, payload[:half], payload[half:], payload)
        ]
        taken = buffer.take()
        for array in taken.values():
            array.validate(full=True)
        found.append((errors, pa.Table.from_pydict(taken)))
    assert all(one[0] == found[0][0] and one[1].equals(found[0][1]) for one in found)


def arrow_batches(data: bytes) -> None:
    decoder = ColumnDecoder()
    try:
        decoder.add(with_right_checksums(data))
    finally:
        for array in decoder.take().values():
            array.validate(full=True)


def controls(data: bytes) -> None:
    """Four bytes of key, then the value."""
    decode_control(Record(Offset(0), Millis(0), data[:4], data[4:]))


def decompression(codec: Codec) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        for magic in (0, 2) if codec is Codec.LZ4 else (2,):
            found = outcome(partial(decompress, codec, data, DECOMPRESSED_BYTES_MAX, magic=magic))
            assert not isinstance(found, bytes) or len(found) <= DECOMPRESSED_BYTES_MAX

    return target


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "headers": headers,
    "batches": batches,
    "appends": appends,
    "records": records,
    "checks": checks,
    "arrow": arrow,
    "arrow_batches": arrow_batches,
    "controls": controls,
    **{codec.name.lower(): decompression(codec) for codec in Codec if codec is not Codec.NONE},
}


def run(name: str, data: bytes) -> None:
    """One input. Raises for a finding only."""
    try:
        TARGETS[name](data)
    except TidelogError:
        return


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the documented error in words."""
    try:
        return call()
    except TidelogError as error:
        return type(error), str(error)


def with_right_checksums(data: bytes) -> bytes:
    """The batches with the checksums that their bytes ask for; the first that is none, and what follows, as it is."""
    from zlib import crc32

    right = bytearray(data)
    try:
        for header in walk_headers(data):
            if header.magic == 2:
                struct.pack_into(
                    ">I", right, header.position + CRC_AT, crc32c(right[header.position + ATTRIBUTES_AT : header.end])
                )
            else:
                struct.pack_into(
                    ">I", right, header.position + LOG_OVERHEAD, crc32(right[header.position + MAGIC_AT : header.end])
                )
    except TidelogError:
        pass
    return bytes(right)


@cache
def kafka_batches() -> tuple[bytes, ...]:
    """Batches and messages that Kafka wrote, of every format and codec, small ones first."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for path in sorted(VECTORS.glob("*.tar.xz")):
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(path.read_bytes()))) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None and member.name.endswith((".log", ".checkpoint")):
                    for batch in _whole(content.read()):
                        kind = batch.header.magic, batch.header.attributes
                        found.setdefault(kind, []).append(bytes(batch.buffer))
    return tuple(data for same in found.values() for data in sorted(same, key=len)[:4] if len(data) <= SEED_BYTES_MAX)


def _whole(data: bytes) -> Iterator[RecordBatch]:
    try:
        yield from iter_batches(data)
    except TidelogError:
        return  # a preallocated file ends in zeros


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with, made of what Kafka wrote."""
    found: list[bytes] = []
    for data in kafka_batches():
        (batch,) = iter_batches(data)
        if name in ("headers", "batches", "appends", "arrow_batches"):
            found.append(data)
        elif batch.magic < 2:
            if name == batch.codec.name.lower():
                found.append(data[-len(batch.value or b"") :])  # type: ignore[attr-defined]
        elif name == batch.codec.name.lower():
            found.append(data[HEADER_BYTES:])
        elif name in ("records", "checks", "arrow"):
            found.append(batch.count.to_bytes(2, "big") + bytes(batch.payload()))
        elif name == "controls" and batch.is_control:
            found += [(record.key or b"") + (record.value or b"") for record in batch.records()]
    return found
