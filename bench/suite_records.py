"""The record codec: the cost of writing, reading and checking a batch, and of conversion to Arrow columns.

One thread; batches of 500 records with a key of 10 bytes and a value of 100, uncompressed. Contenders take turns and
each counts with its best, in processor time, so that other load on the machine is not measured. Peers: aiokafka's
compiled codec and kafka-python's. Only common work is compared: aiokafka verifies the checksum of what it reads, and so
does this codec.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.figure import Better, Figure, Run
from tidelog.records import (
    HEADER_BYTES,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    Rules,
    analyze,
    build_batch,
    crc32c,
    implementation,
)
from tidelog.records.arrow_columns import ColumnDecoder, encode_columns
from tidelog.records.v2 import record_check, records_buffer
from tidelog.records.v2.fast_paths import check_records
from tidelog.records.v2.record import decode_records
from tidelog.types import Millis, Offset

RECORDS = 500
BATCHES = 20
NOW = 1_700_000_000_000
TURN_SECONDS = 0.005
ROUNDS = 60
ANALYZED_BYTES = 256 * 1024
Work = Callable[[], Any]


def figures(run: Run) -> Iterator[Figure]:
    run.say(f"records: the codec in use is {implementation()}")
    yield from encoding(run)
    yield from decoding(run)
    yield from columns(run)
    yield from validation(run)
    yield from analysis(run)


def encoding(run: Run) -> Iterator[Figure]:
    """From (key, value, timestamp, headers) to the bytes of a batch, checksum included."""
    rows = [(b"key-%06d" % i, b"v" * 100, NOW + i, ()) for i in range(RECORDS)]
    peers = kafka_builders()
    rate = rates(
        run,
        RECORDS,
        {
            "ours": lambda: encode(rows),
            "one by one": lambda: encode_singly(rows),
            "reference": lambda: reference_encode(rows),
            "copy": lambda: b"".join([row[1] for row in rows]),
            **{name: peer_encoder(builder, rows) for name, builder in peers.items()},
        },
    )
    yield Figure("encode, against aiokafka", rate["ours"], "records/s", rate["aiokafka"], target=5)
    yield Figure("encode record by record, against aiokafka", rate["one by one"], "records/s", rate["aiokafka"])
    yield Figure("encode in pure Python, against kafka-python", rate["reference"], "records/s", rate["kafka"], target=1)
    yield Figure("encode, against joining the values (raw limit)", rate["ours"], "records/s", rate["copy"])


def decoding(run: Run) -> Iterator[Figure]:
    """From the bytes of a batch to a list of objects with named fields."""
    data = batch()
    aio, kafka = kafka_readers()
    rate = rates(
        run,
        RECORDS,
        {
            "ours": lambda: decode(data, check=True),
            "ours unchecked": lambda: decode(data, check=False),
            "reference": lambda: list(decode_records(data[HEADER_BYTES:], RECORDS, 0, NOW)),
            "aiokafka": lambda: peer_decode(aio, data, check=True),
            "aiokafka unchecked": lambda: peer_decode(aio, data, check=False),
            "kafka": lambda: peer_decode(kafka, data, check=False),
        },
    )
    yield Figure(
        "decode to records, checksum checked, against aiokafka", rate["ours"], "records/s", rate["aiokafka"], 3
    )
    yield Figure(
        "decode to records, unchecked, against aiokafka",
        rate["ours unchecked"],
        "records/s",
        rate["aiokafka unchecked"],
        target=3,
    )
    yield Figure("decode in pure Python, against kafka-python", rate["reference"], "records/s", rate["kafka"], target=1)


def columns(run: Run) -> Iterator[Figure]:
    """Between the bytes of many batches and Arrow columns: key, value, offset, timestamp, headers."""
    data = b"".join(batch(RECORDS * number) for number in range(BATCHES))
    one = data[: len(data) // BATCHES]
    aio, _ = kafka_readers()
    decoder = ColumnDecoder()
    decoder.add(one)
    arrays = decoder.take()
    rate = rates(
        run,
        RECORDS * BATCHES,
        {
            "ours": lambda: to_arrow(data, ("key", "value", "offset", "timestamp", "headers")),
            "values": lambda: to_arrow(data, ("value",)),
            "aiokafka": lambda: times(BATCHES, lambda: to_lists(aio, one)),
            "encode": lambda: times(BATCHES, lambda: from_arrow(arrays)),
            "copy": lambda: bytearray(data),
        },
    )
    yield Figure("decode to Arrow", rate["ours"], "records/s", target=10e6)
    yield Figure("decode to Arrow, against aiokafka to lists", rate["ours"], "records/s", rate["aiokafka"], target=8)
    yield Figure("decode to Arrow, against copying the bytes (raw limit)", rate["ours"], "records/s", rate["copy"])
    yield Figure("decode values alone to Arrow", rate["values"], "records/s")
    yield Figure("encode from Arrow", rate["encode"], "records/s")


def validation(run: Run) -> Iterator[Figure]:
    """Check every record's offset, size, key and timestamp bounds without creating an object for it."""
    payload = memoryview(batch())[HEADER_BYTES:]
    rules = Rules(key_required=True, timestamp_min=NOW - 10_000, timestamp_max=NOW + 10_000)
    given = {"base_offset": 0, "last_offset_delta": RECORDS - 1, "base_timestamp": NOW, "rules": rules}
    rate = rates(
        run,
        RECORDS,
        {
            "ours": lambda: check_records(payload, RECORDS, **given),  # type: ignore[arg-type]
            "reference": lambda: record_check.check_records(payload, RECORDS, **given),  # type: ignore[arg-type]
        },
    )
    yield Figure("deep validation", rate["ours"], "records/s", target=15e6)
    yield Figure("deep validation, against pure Python", rate["ours"], "records/s", rate["reference"])


def analysis(run: Run) -> Iterator[Figure]:
    """Headers and checksums of 256 KiB: the checks of a follower."""
    size = len(batch())
    whole = batch(count=RECORDS * ANALYZED_BYTES // size)
    several = batch() * (ANALYZED_BYTES // size)
    seconds = {
        name: 1 / rate
        for name, rate in rates(
            run, 1, {"one": lambda: analyze(whole), "four": lambda: analyze(several), "crc": lambda: crc32c(whole)}
        ).items()
    }
    yield Figure("analysis of one batch of 256 KiB", seconds["one"] * 1e6, "us", target=30, better=Better.LESS)
    yield Figure("analysis of 256 KiB in four batches", seconds["four"] * 1e6, "us", target=30, better=Better.LESS)
    yield Figure(
        "analysis of 256 KiB, against its checksum alone (raw limit)",
        seconds["one"] * 1e6,
        "us",
        seconds["crc"] * 1e6,
        better=Better.LESS,
    )


# --- the contenders ----------------------------------------------------------------------------------------------


def batch(first: int = 0, count: int = RECORDS) -> bytes:
    return build_batch([Record(Offset(first + i), Millis(NOW + i), b"key-%06d" % i, b"v" * 100) for i in range(count)])


def encode(rows: list[Any]) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend(rows)
    return builder.build()


def encode_singly(rows: list[Any]) -> bytes:
    builder = RecordBatchBuilder()
    append = builder.records.append
    for key, value, timestamp, headers in rows:
        append(key, value, timestamp, headers)
    return builder.build()


def reference_encode(rows: list[Any]) -> bytes:
    builder = RecordBatchBuilder()
    builder.records = records_buffer.RecordsBuffer()
    builder.extend(rows)
    return builder.build()


def decode(data: bytes, *, check: bool) -> list[Record]:
    view = RecordBatch(data)
    if check:
        view.ensure_valid()
    return view.record_list()


def to_arrow(data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    decoder = ColumnDecoder(names)
    decoder.add(data)
    return decoder.take()


def from_arrow(arrays: Mapping[str, Any]) -> bytes:
    builder = RecordBatchBuilder()
    encode_columns(builder, key=arrays["key"], value=arrays["value"], timestamp=arrays["timestamp"])
    return builder.build()


def kafka_builders() -> dict[str, Any]:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

    assert "_crecords" in AiokafkaBuilder.__module__, "aiokafka has no compiled codec and is no valid peer"
    return {"aiokafka": AiokafkaBuilder, "kafka": KafkaBuilder}


def kafka_readers() -> tuple[Any, Any]:
    from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
    from kafka.record.default_records import DefaultRecordBatch as KafkaBatch

    return AiokafkaBatch, KafkaBatch


def peer_encoder(builder_class: Any, rows: list[Any]) -> Work:
    rows = [(key, value, timestamp, list(headers)) for key, value, timestamp, headers in rows]

    def work() -> bytes:
        builder = builder_class(2, 0, False, -1, -1, -1, 1 << 20)  # noqa: FBT003
        append = builder.append
        for offset, (key, value, timestamp, headers) in enumerate(rows):
            append(offset, timestamp, key, value, headers)
        return bytes(builder.build())

    return work


def peer_decode(batch_class: Any, data: bytes, *, check: bool) -> list[Any]:
    view = batch_class(data)
    if check:
        assert view.validate_crc()
    return list(view)


def to_lists(batch_class: Any, data: bytes) -> tuple[list[Any], ...]:
    keys, values, offsets, timestamps, headers = lists = ([], [], [], [], [])  # type: ignore[var-annotated]
    for record in peer_decode(batch_class, data, check=True):
        keys.append(record.key)
        values.append(record.value)
        offsets.append(record.offset)
        timestamps.append(record.timestamp)
        headers.append(record.headers)
    return lists


def times(count: int, work: Work) -> None:
    """Call `work` `count` times and keep nothing."""
    for _ in range(count):
        work()


def rates(run: Run, units: int, works: Mapping[str, Work]) -> dict[str, float]:
    """Units per second of each, by the best of many turns, because other load only adds time. A turn has many calls,
    so that the effect of other contenders on the caches is small."""
    calls = {name: max(1, int(TURN_SECONDS / seconds_of(work))) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(3 if run.quick else ROUNDS):
        for name, work in works.items():
            seconds[name].append(seconds_of(work, calls[name]))
    return {name: units / min(taken) for name, taken in seconds.items()}


def seconds_of(work: Work, calls: int = 1) -> float:
    """Processor time of one call: clock time on a shared machine includes other programs."""
    begun = time.thread_time()
    for _ in range(calls):
        work()
    return (time.thread_time() - begun) / calls
