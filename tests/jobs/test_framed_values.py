"""Messages that a schema registry's serializer has written: which message of the schema each one is."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.table_records import records
from tidelog.jobs.encoded_values import ProtobufReader, protobuf_schema
from tidelog.jobs.framed_values import framed_reader, read_indexes
from tidelog.jobs.table_rows import ValueFormat, fit_rows, value_reader

ID = b"\0\0\0\0\x07"
QUARANTINED = "of the schema, shop.Order, not shop.Person"


def schema_file() -> descriptor_pb2.FileDescriptorProto:
    """`Order` with a map, and behind it the messages `Line` and `Line.Price`, `Order.Note`; then `Person`."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")

    def message(into: Any, name: str) -> Any:
        made = into.add(name=name)
        made.field.add(name="id", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
        return made

    order = message(file.message_type, "Order")
    order.field.add(
        name="count", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=".shop.Order.CountEntry"
    )
    message(order.nested_type, "Before")
    entry = order.nested_type.add(name="CountEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    message(message(order.nested_type, "Line").nested_type, "Price")
    message(order.nested_type, "Note")
    message(file.message_type, "Person")
    return file


POOL = descriptor_pool.DescriptorPool()
POOL.Add(schema_file())
DESCRIPTORS = descriptor_pb2.FileDescriptorSet(file=[schema_file()]).SerializeToString()


def written(name: str, number: int) -> bytes:
    made: Any = message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))
    return bytes(made(id=number).SerializeToString())


def indexes(*given: int, count: int | None = None) -> bytes:
    """In zigzag; all of these numbers fit into a byte."""
    return bytes(2 * each for each in (len(given) if count is None else count, *given))


def reason(name: str, frame: bytes) -> str | None:
    """Why a framed value of a reader of this message is in quarantine; None if it is not."""
    reader = framed_reader(ProtobufReader(protobuf_schema(DESCRIPTORS, name)), 7)
    fitted = reader.fit(ID + frame + written(name, 5))
    assert fitted.fields == (None if fitted.reason else {"id": 5} | ({"count": []} if name == "shop.Order" else {}))
    return fitted.reason


@pytest.mark.parametrize("frame", [b"\0", indexes(0)], ids=["short", "long"])
def test_the_first_message_has_a_short_form_and_a_long_one(frame: bytes) -> None:
    assert reason("shop.Order", frame) is None
    assert reason("shop.Person", frame) == f"it is message [0] {QUARANTINED}"


@pytest.mark.parametrize(
    "name", ["shop.Order", "shop.Person", "shop.Order.Before", "shop.Order.Line.Price", "shop.Order.Note"]
)
def test_what_confluents_serializer_puts_in_front_is_read(name: str) -> None:
    """It counts entries of maps, which comes to the number of another message for `Order.Line` only."""
    out = BytesIO()
    ProtobufSerializer._encode_varints(out, _create_index_array(POOL.FindMessageTypeByName(name)))
    assert reason(name, out.getvalue()) is None


def test_messages_are_counted_with_and_without_entries_of_maps() -> None:
    """`Note` is number 3 with the entry of the map and 2 without it, and `Line` is number 2 with it."""
    assert reason("shop.Order.Note", indexes(0, 3)) is None
    assert reason("shop.Order.Line", indexes(0, 1)) is None
    unclear = "it is message [0, 2] of the schema, shop.Order.Line or shop.Order.Note, not "
    assert reason("shop.Order.Note", indexes(0, 2)) == f"{unclear}shop.Order.Note"
    assert reason("shop.Order.Line", indexes(0, 2)) == f"{unclear}shop.Order.Line"


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (indexes(5), "it is message [5] of the schema, which it does not have, not shop.Person"),
        (indexes(1, 0), "it is message [1, 0] of the schema, which it does not have, not shop.Person"),
        (b"\x01", "message indexes end early"),
        (indexes(1, count=90), "message indexes end early"),
        (b"\xff\xff\xff\xff\xff\xff", "message indexes end early"),
    ],
)
def test_indexes_that_mean_nothing_are_a_reason(frame: bytes, said: str) -> None:
    found = reason("shop.Person", frame)
    assert found is not None and said in found


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4), st.binary(max_size=5))
def test_indexes_are_read_as_they_are_written(numbers: list[int], behind: bytes) -> None:
    out = BytesIO()
    ProtobufSerializer._encode_varints(out, numbers)
    front = out.getvalue()
    assert read_indexes(ID + front + behind, len(ID)) == (tuple(numbers), len(ID) + len(front))
    assert read_indexes(front[:-1], 0) is None or numbers == [0]


@given(st.binary(max_size=12))
def test_any_bytes_have_indexes_or_none(value: bytes) -> None:
    found = read_indexes(value, 0)
    assert found is None or (0 < found[1] <= len(value) and all(each >= 0 for each in found[0]))


def test_rows_of_another_message_are_in_quarantine_with_their_bytes() -> None:
    reader = value_reader(ValueFormat("protobuf", protobuf_schema(DESCRIPTORS, "shop.Person"), 7))
    other = ID + b"\0" + written("shop.Order", 6)
    rows = fit_rows(records([ID + indexes(1) + written("shop.Person", 5), other]), reader).to_pylist()
    assert [row["value"] for row in rows] == [{"id": 5}, None]
    assert rows[0]["quarantine"] is None
    assert rows[1]["quarantine"] == {"value": other, "reason": f"it is message [0] {QUARANTINED}"}
