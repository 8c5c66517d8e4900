"""The fast path for the usual batch of a producer gives what the general path gives, and leaves all else to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.append_info import Origin
from storage.log import validation
from storage.log.validation import Prepared, append_rules, prepare_leader
from storage.log_config import LogConfig
from tidelog.errors import TidelogError
from tidelog.records import HEADER_BYTES, RecordBatchBuilder, crc32c
from tidelog.records.assignment import AppendRules
from tidelog.types import Codec, LeaderEpoch, Millis, Offset, ProducerId, TimestampType

NOW = Millis(1_700_000_000_000)
USUAL = append_rules(LogConfig())
NO_PRODUCER = (-1, -1, -1)


def batch(
    *,
    values: int = 3,
    key: bytes | None = b"k",
    at: int = NOW,
    producer: tuple[int, int, int] = NO_PRODUCER,
    codec: Codec = Codec.NONE,
) -> bytes:
    producer_id, epoch, sequence = producer
    builder = RecordBatchBuilder(
        codec=codec, producer_id=ProducerId(producer_id), producer_epoch=epoch, base_sequence=sequence
    )
    for number in range(values):
        builder.append(key=key, value=b"value %d" % number, timestamp=Millis(at + number))
    return builder.build()


def prepare(records: bytes | memoryview, rules: AppendRules, origin: Origin = Origin.CLIENT) -> Prepared | None:
    return prepare_leader(
        records,
        rules,
        log_start=Offset(5),
        log_end=Offset(70),
        leader_epoch=LeaderEpoch(9),
        now=NOW,
        origin=origin,
    )


def without_records() -> bytes:
    """A header with a correct checksum that declares no records."""
    head = bytearray(batch()[:HEADER_BYTES])
    head[8:12] = (HEADER_BYTES - 12).to_bytes(4)
    head[23:27] = (-1).to_bytes(4, signed=True)
    head[35:43] = (-1).to_bytes(8, signed=True)
    head[57:61] = bytes(4)
    head[17:21] = crc32c(head[21:]).to_bytes(4)
    return bytes(head)


def outcome(records: bytes | memoryview, rules: AppendRules, origin: Origin = Origin.CLIENT) -> object:
    """What an append gives: the stored bytes with their description, or the error."""
    try:
        prepared = prepare(records, rules, origin)
    except TidelogError as error:
        return type(error), error.message
    return prepared and (b"".join(prepared.buffers), prepared.headers, prepared.info)


def both(records: bytes | memoryview, rules: AppendRules, origin: Origin = Origin.CLIENT) -> tuple[object, object]:
    """With the fast path, and without."""
    fast = outcome(records, rules, origin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "_prepare_usual", lambda *_args, **_kwargs: None)
        return fast, outcome(records, rules, origin)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each append: did the fast path take it?"""
    results: list[bool] = []
    usual: Callable[..., Prepared | None] = validation._prepare_usual

    def watched(*args: object, **kwargs: object) -> Prepared | None:
        prepared = usual(*args, **kwargs)
        results.append(prepared is not None)
        return prepared

    monkeypatch.setattr(validation, "_prepare_usual", watched)
    return results


@pytest.mark.parametrize("records", [batch(), batch(key=None), batch(values=1), batch(producer=(7, 0, 12))])
@pytest.mark.parametrize("view", [bytes, memoryview, lambda data: memoryview(bytearray(data))])
def test_a_usual_batch_takes_the_fast_path_with_the_same_result(
    records: bytes, view: Callable[[bytes], bytes | memoryview], taken: list[bool]
) -> None:
    prepare(view(records), USUAL)
    assert taken == [True]
    fast, general = both(view(records), USUAL)
    assert fast == general


UNUSUAL_RULES = {
    "log append time": replace(USUAL, timestamp_type=TimestampType.LOG_APPEND_TIME),
    "another format": replace(USUAL, magic=1),
    "another codec": replace(USUAL, codec=Codec.GZIP),
    "a key for each record": replace(USUAL, key_required=True),
    "small batches": replace(USUAL, batch_bytes_max=80),
    "no early timestamps": replace(USUAL, timestamp_before_max_ms=1_000),
    "uncompressed": replace(USUAL, codec=Codec.NONE),
}
UNUSUAL_RECORDS = {
    "usual": batch(),
    "without keys": batch(key=None),
    "compressed": batch(codec=Codec.GZIP),
    "old": batch(at=NOW - 5_000),
    "nothing": b"",
    "no records": without_records(),
    "half a header": batch()[: HEADER_BYTES - 1],
    "a part of a batch": batch()[:-1],
    "a batch and a part of the next": batch() + batch()[:30],
    "two batches": batch() + batch(),
    "a producer without an epoch": batch(producer=(7, -1, 0)),
    "a producer without a sequence": batch(producer=(7, 0, -1)),
}


@pytest.mark.parametrize("rules", UNUSUAL_RULES)
@pytest.mark.parametrize("records", UNUSUAL_RECORDS)
@pytest.mark.parametrize("origin", list(Origin))
def test_anything_else_has_the_result_or_the_error_of_the_general_path(
    rules: str, records: str, origin: Origin
) -> None:
    fast, general = both(UNUSUAL_RECORDS[records], UNUSUAL_RULES[rules], origin)
    assert fast == general
    fast, general = both(UNUSUAL_RECORDS[records], USUAL, origin)
    assert fast == general


@pytest.mark.parametrize("producer", [NO_PRODUCER, (7, 0, 12)])
def test_a_batch_with_a_changed_byte_has_the_result_or_the_error_of_the_general_path(
    producer: tuple[int, int, int],
) -> None:
    records = batch(producer=producer)
    for at in range(len(records)):
        for flipped in (0x01, 0x40, 0x80, 0xFF):
            changed = bytearray(records)
            changed[at] ^= flipped
            fast, general = both(bytes(changed), USUAL)
            assert fast == general, f"byte {at} ^ {flipped:#x}"


@pytest.mark.parametrize("field", range(21, HEADER_BYTES))
def test_a_batch_with_an_unusual_field_and_a_correct_checksum_is_judged_by_the_general_path(field: int) -> None:
    for value in (0x00, 0x01, 0x08, 0x10, 0x7F, 0x80, 0xFF):
        changed = bytearray(batch(producer=(7, 0, 12)))
        changed[field] = value
        changed[17:21] = crc32c(changed[21:]).to_bytes(4)
        fast, general = both(bytes(changed), USUAL)
        assert fast == general, f"byte {field} = {value:#x}"
