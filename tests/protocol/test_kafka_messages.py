"""Codecs that are generated from Kafka's schemas: all messages of the product, and two more requests and answers.

Oracles: kio, which reads and writes the messages by code of its own, and golden bytes of Kafka
(tests/replication/test_coordinator_formats.py).
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from tests.protocol.kafka_messages import OTHERS, PRODUCT, ROOT, WIRE, message
from tidelog.protocol.kafka.message_codec import MalformedMessage, UnencodableMessage
from tidelog.protocol.kafka.messages.group_metadata_value import (
    GROUP_METADATA_VALUE,
    GroupMetadataValue,
    MemberMetadata,
)
from tidelog.protocol.kafka.messages.transaction_log_value import TRANSACTION_LOG_VALUE, TransactionLogValue
from tidelog.protocol.kafka.schemas.generate import generate, snake
from tidelog.types import Millis, ProducerId, TransactionState

each_message = pytest.mark.parametrize("path", [*PRODUCT, *OTHERS], ids=lambda path: path.stem)
each_message_of_kio = pytest.mark.parametrize("path", [*WIRE, *OTHERS], ids=lambda path: path.stem)
few_examples = settings(max_examples=20)
"""Of each message, hundreds together: one generator makes the code of all."""


def schema(name: str) -> Path:
    return ROOT / "tidelog/protocol/kafka/schemas" / f"{name}.json"


# --- every message in every version -----------------------------------------------------------------------------


def ensure_each_byte_is_needed(path: Path, data: st.DataObject) -> None:
    codec, version = message(path).codec, data.draw(st.sampled_from(message(path).versions))
    value = data.draw(message(path).instances(version))
    encoded = codec.encode(value, version)
    assert codec.decode(encoded, version) == (value, len(encoded))
    assert codec.decode(memoryview(b"!" + encoded + b"!!"), version, 1) == (value, 1 + len(encoded))
    if encoded:
        with pytest.raises(MalformedMessage, match=f"{message(path).name} in version {version}: "):
            codec.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))], version)


def ensure_a_message_or_the_error(path: Path, data: st.DataObject) -> None:
    codec, version = message(path).codec, data.draw(st.sampled_from(message(path).versions))
    with suppress(MalformedMessage):
        codec.decode(data.draw(st.binary(max_size=80)), version)
    damaged = bytearray(codec.encode(data.draw(message(path).instances(version)), version))
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    with suppress(MalformedMessage):
        codec.decode(bytes(damaged), version)


def ensure_kio_agrees(path: Path, data: st.DataObject) -> None:
    """The numbers are small: kio makes enumerations and dates of some, which have fewer values."""
    version = data.draw(st.sampled_from(message(path).versions))
    api, kind = snake(path.stem).rsplit("_", 1)
    package = (
        f"kio.schema.{api}_header.v{version}.header" if kind == "header" else f"kio.schema.{api}.v{version}.{kind}"
    )
    entity = getattr(importlib.import_module(package), path.stem)
    encoded = message(path).codec.encode(data.draw(message(path).instances(version, tame=True)), version)
    read, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    written = BytesIO()
    entity_writer(entity)(written, read)
    assert written.getvalue() == encoded


@each_message
@few_examples
@given(data=st.data())
def test_messages_come_back_and_need_each_of_their_bytes(path: Path, data: st.DataObject) -> None:
    ensure_each_byte_is_needed(path, data)


@each_message
@few_examples
@given(data=st.data())
def test_any_bytes_are_a_message_or_the_error(path: Path, data: st.DataObject) -> None:
    ensure_a_message_or_the_error(path, data)


@each_message_of_kio
@few_examples
@given(data=st.data())
def test_kio_reads_what_is_written_and_writes_the_same(path: Path, data: st.DataObject) -> None:
    ensure_kio_agrees(path, data)


@pytest.mark.deep
@pytest.mark.parametrize("ensure", [ensure_each_byte_is_needed, ensure_a_message_or_the_error, ensure_kio_agrees])
@settings(max_examples=6_000)
@given(data=st.data())
def test_many_examples_of_all_messages(
    ensure: Callable[[Path, st.DataObject], None],
    data: st.DataObject,
) -> None:
    """Thousands of examples find what the few of the first tier do not: values that only one field of one version
    takes."""
    ensure(data.draw(st.sampled_from([*WIRE, *OTHERS] if ensure is ensure_kio_agrees else [*PRODUCT, *OTHERS])), data)


# --- records ----------------------------------------------------------------------------------------------------


def test_records_are_views_of_the_frame_and_leave_as_the_object_they_are() -> None:
    """Goal: a megabyte of records is not copied between the socket and the log, in either direction."""
    produce, fetch = message(schema("ProduceRequest")), message(schema("FetchResponse"))
    records = bytes(range(256)) * 4_096
    partitions = tuple(produce.module.PartitionProduceData(number, each) for number, each in enumerate((records, None)))
    topic = produce.module.TopicProduceData(name="orders", partition_data=partitions)
    sent = produce.module.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=(topic,))
    frame = memoryview(produce.codec.encode(sent, 9))

    request, end = produce.codec.decode(frame, 9)
    view = request.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame.obj
    assert (bytes(view), end) == (records, len(frame))
    assert request.topic_data[0].partition_data[1].records is None

    partition = fetch.module.PartitionData(
        partition_index=0, error_code=0, high_watermark=7, last_stable_offset=7, aborted_transactions=None, records=view
    )
    answer = fetch.module.FetchResponse(
        throttle_time_ms=0, responses=(fetch.module.FetchableTopicResponse(topic="orders", partitions=(partition,)),)
    )
    parts = fetch.codec.encode_parts(answer, 12)
    assert [part is view for part in parts] == [False, True, False]
    assert b"".join(parts) == fetch.codec.encode(answer, 12)


# --- versions ---------------------------------------------------------------------------------------------------


def test_a_request_may_have_trailing_bytes() -> None:
    """librdkafka leaves three bytes behind the body when it asks for all topics; a listener ignores them."""
    codec = message(schema("MetadataRequest")).codec
    every_topic = bytes.fromhex("00" + "010000" + "00")
    request, end = codec.decode(every_topic + b"\0\0\0", 9)
    assert (request.topics, end) == (None, len(every_topic))


def test_the_client_id_of_a_flexible_header_has_the_plain_encoding() -> None:
    header, end = message(schema("RequestHeader")).codec.decode(bytes.fromhex("0003 0009 00000007 0001 63 00"), 2)
    assert (header.correlation_id, header.client_id, end) == (7, "c", 12)


def test_requests_are_only_read_and_answers_only_written() -> None:
    for name, reads, writes in (
        ("FetchRequest", True, False),
        ("FetchResponse", False, True),
        ("RequestHeader", True, True),
    ):
        _, source = generate(schema(name).read_text(encoding="utf-8"))
        assert (f"def _read_{snake(name)}_" in source, f"def _write_{snake(name)}_" in source) == (reads, writes)


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="GroupMetadataValue has no version 5, only 0, 1, 2, 3, 4"):
        GROUP_METADATA_VALUE.decode(b"", 5)
    with pytest.raises(UnencodableMessage, match="GroupMetadataValue has no version -1"):
        GROUP_METADATA_VALUE.encode(GroupMetadataValue("", 0, None, None, ()), -1)


def test_a_value_that_a_version_would_lose_is_refused_unless_the_schema_allows_it() -> None:
    value = TransactionLogValue(
        ProducerId(1), 0, 0, TransactionState.EMPTY, None, Millis(0), Millis(0), next_producer_id=ProducerId(2)
    )
    with pytest.raises(UnencodableMessage, match=r"TransactionLogValue\.next_producer_id has a value"):
        TRANSACTION_LOG_VALUE.encode(value, 0)
    group = GroupMetadataValue("", 0, None, None, (), current_state_timestamp=Millis(7))  # ignorable
    assert GROUP_METADATA_VALUE.decode(GROUP_METADATA_VALUE.encode(group, 1), 1)[0].current_state_timestamp == -1


def test_null_is_refused_where_a_version_has_none() -> None:
    metadata = message(schema("MetadataRequest"))
    request = metadata.module.MetadataRequest(None)
    assert metadata.codec.decode(metadata.codec.encode(request, 1), 1)[0].topics is None
    with pytest.raises(UnencodableMessage, match=r"MetadataRequest\.topics is null"):
        metadata.codec.encode(request, 0)
    with pytest.raises(MalformedMessage, match="null, which its version does not allow"):
        metadata.codec.decode(b"\xff\xff\xff\xff", 0)


# --- hostile bytes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ("7fffffff", "an array of 2147483647 elements at byte 22 exceeds the data"),
        ("fffffffe", "an array of -2 elements"),
        ("00000001 7fff", "a field of 32767 bytes at byte 24 exceeds the data"),
        ("00000001 0001 ff", "a string is not UTF-8"),
        ("00000001 ffff", "null, which its version does not allow"),
        ("00000001 0000 ffff 0000 0000 000000", "the data end within a field"),
    ],
)
def test_lengths_are_not_trusted(members: str, complaint: str) -> None:
    head = "0000 00000000 ffff ffff".replace(" ", "") + "00" * 8
    with pytest.raises(MalformedMessage, match=complaint):
        GROUP_METADATA_VALUE.decode(bytes.fromhex(head + members), 3)


def test_a_message_has_as_many_elements_as_its_reader_allows() -> None:
    """Goal: a request does not grow: an array of a million elements of one byte would be a million objects."""
    metadata = message(schema("MetadataRequest"))
    topics = tuple(metadata.module.MetadataRequestTopic(name="") for _ in range(1_000))
    encoded = metadata.codec.encode(metadata.module.MetadataRequest(topics), 9)
    assert len(metadata.codec.decode(encoded, 9, elements_max=1_000)[0].topics) == 1_000
    with pytest.raises(MalformedMessage, match="an array of 1000 elements at byte 2 exceeds the limit of elements"):
        metadata.codec.decode(encoded, 9, elements_max=999)
    tagged = encoded[:-1] + b"\x7d" + b"\x09\0" * 125
    assert len(metadata.codec.decode(tagged, 9, elements_max=1_125)[0].topics) == 1_000
    with pytest.raises(MalformedMessage, match=r"an array of 125 elements at byte .* exceeds the limit of elements"):
        metadata.codec.decode(tagged, 9, elements_max=1_124)


def test_the_version_of_a_header_follows_the_first_flexible_version() -> None:
    """A request of a flexible version has header 2 and its answer header 1."""
    assert [message(schema(name)).codec.flexible_from for name in ("ProduceRequest", "FetchResponse")] == [9, 12]


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        ("01 00 07 00000000000000", "the data end within a field|ends at byte"),
        ("01 00 09 000000000000000100", "the field of tag 0 ends at byte"),
        ("ffffffff7f", "does not end, or exceeds 31 bits"),
        ("ffffffffff0f", "does not end, or exceeds 31 bits"),
        ("01 09 ffffffff07", "a field of 2147483647 bytes"),
    ],
)
def test_tagged_fields_are_as_long_as_they_say(tags: str, complaint: str) -> None:
    value = TransactionLogValue(ProducerId(1), 0, 0, TransactionState.EMPTY, None, Millis(0), Millis(0))
    encoded = TRANSACTION_LOG_VALUE.encode(value, 1)
    assert encoded[-1:] == b"\0"
    with pytest.raises(MalformedMessage, match=complaint):
        TRANSACTION_LOG_VALUE.decode(encoded[:-1] + bytes.fromhex(tags), 1)


@pytest.mark.parametrize(
    ("member", "complaint"),
    [
        (MemberMetadata("m" * 32_768, "", "", 0, b"", b""), "has 32768 bytes, and its format allows 32767"),
        (MemberMetadata("\ud800", "", "", 0, b"", b""), "not valid Unicode"),
        (MemberMetadata("", "", "", 2**31, b"", b""), "a number out of range in version 3"),
    ],
)
def test_values_that_have_no_bytes_are_refused(member: MemberMetadata, complaint: str) -> None:
    with pytest.raises(UnencodableMessage, match=complaint):
        GROUP_METADATA_VALUE.encode(GroupMetadataValue("", 0, None, None, (member,)), 3)


# --- generated code ---------------------------------------------------------------------------------------------


def test_structures_are_values() -> None:
    first, second = MemberMetadata("m", "c", "h", 1, b"", b""), MemberMetadata("m", "c", "h", 1, b"", b"")
    assert (first == second, hash(first) == hash(second), first == first.replace(client_id="d")) == (True, True, False)
    assert not hasattr(first, "__dict__")
    assert repr(first).startswith("MemberMetadata(member_id='m', client_id='c'")
    assert first != "m"


def test_a_module_loads_no_other_message_and_no_heavy_library(tmp_path: Path) -> None:
    """A node imports one module for each message that it serves, so a module must be light."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tidelog.protocol.kafka.messages.group_metadata_value; "
        "print(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = printed.stdout.split()
    messages = [name for name in loaded if name.startswith("tidelog.protocol.kafka.messages.")]
    assert messages == ["tidelog.protocol.kafka.messages.group_metadata_value"]
    assert not {"asyncio", "google.protobuf", "grpc"} & set(loaded)
