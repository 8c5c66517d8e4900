"""Values in Avro and Protobuf: what fits, and what is kept with a reason. Without Spark's JVM."""

from __future__ import annotations

import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.table_records import records
from tidelog.errors import InvalidConfig
from tidelog.jobs.encoded_values import AvroReader, ProtobufReader, protobuf_schema
from tidelog.jobs.table_rows import ValueFormat, fit_rows, value_reader

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
MORE = "it is no Avro record of the schema, which ends at byte "


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "amount": Decimal(number) / 100,
        "state": "PAID",
        "at": None,
        "lines": [{"a": number}],
        "uuid": "00000000-0000-0000-0000-000000000001",
    }


def avro(record: dict[str, Any]) -> bytes:
    out = BytesIO()
    plain = json.loads(json.dumps(ORDER).replace(', "logicalType": "uuid"', ""))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), record)
    return out.getvalue()


def test_an_avro_schema_has_columns() -> None:
    assert AvroReader(json.dumps(ORDER)).schema.simpleString() == (
        "struct<id:bigint,amount:decimal(9,2),state:string,at:timestamp,lines:array<map<string,int>>,uuid:string>"
    )


@given(st.integers(-(10**6), 10**6), st.binary(max_size=4))
def test_an_avro_value_fits_to_its_last_byte(number: int, behind: bytes) -> None:
    reader, value = AvroReader(json.dumps(ORDER)), avro(order(number))
    assert reader.fit(value) == (order(number), None)
    if behind:
        assert reader.fit(value + behind) == (None, f"{MORE}{len(value)}")
    assert reader.fit(value[:-1]).fields is None and reader.fit(value[:-1]).reason


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_have_a_reason(value: bytes) -> None:
    for reader in (AvroReader(json.dumps(ORDER)), protobuf()):
        fitted = reader.fit(value)
        assert fitted.fields is not None or fitted.reason


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('"string"', "must be a record with fields"),
        ("{", "is no Avro schema"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]}', "no union of types"),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}',
            "record A contains itself",
        ),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "null"}]}', "always null has no type"),
    ],
)
def test_an_avro_schema_that_no_table_has_is_refused(schema: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        AvroReader(schema)


def test_an_avro_schema_names_its_types_by_all_rules_of_namespaces() -> None:
    """A type without a namespace has that of the record around it, a name with dots has its own, and either may be
    used by its full name."""
    line = {"type": "record", "name": "Line", "fields": [{"name": "id", "type": "int"}]}
    state = {"type": "enum", "name": "other.State", "symbols": ["NEW"]}
    mine = {"type": "record", "name": "other.Mine", "fields": [{"name": "state", "type": "State"}]}
    kinds = {"first": line, "second": "shop.Line", "third": ["null", "Line"], "state": state, "mine": mine}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    assert AvroReader(json.dumps(schema)).schema.simpleString() == (
        "struct<first:struct<id:int>,second:struct<id:int>,third:struct<id:int>,state:string,mine:struct<state:string>>"
    )


# --- Protobuf ---------------------------------------------------------------------------------------------------------


def descriptors(*more: str) -> descriptor_pb2.FileDescriptorSet:
    """`message Order`, with further strings."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="tags", number=2, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    order.field.add(name="state", number=3, type=field.TYPE_ENUM, label=field.LABEL_OPTIONAL, type_name=".shop.State")
    order.field.add(name="who", number=4, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=".shop.Person")
    order.field.add(
        name="count", number=5, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=".shop.Order.CountEntry"
    )
    entry = order.nested_type.add(name="CountEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    person = file.message_type.add(name="Person")
    for number, name in enumerate(("name", *more), 1):
        person.field.add(name=name, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file])


def protobuf(name: str = "shop.Order") -> ProtobufReader:
    return ProtobufReader(protobuf_schema(descriptors().SerializeToString(), name))


def message(*more: str, **fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptors(*more).file[0])
    found: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return bytes(found(**fields).SerializeToString())


def test_a_message_has_fields() -> None:
    reader = protobuf()
    assert reader.schema.simpleString() == (
        "struct<id:decimal(20,0),tags:array<string>,state:string,who:struct<name:string>,count:map<string,int>>"
    )
    value = message(id=2**64 - 1, tags=["a"], who={"name": "b"}, count={"x": 1})
    fields = {"id": 2**64 - 1, "tags": ["a"], "state": "NEW", "who": {"name": "b"}, "count": [("x", 1)]}
    assert reader.fit(value) == (fields, None)
    assert reader.fit(b"") == ({"id": 0, "tags": [], "state": "NEW", "who": None, "count": []}, None)


def test_what_a_message_has_more_is_kept() -> None:
    fitted = protobuf().fit(message("email", who={"name": "b", "email": "c"}))
    assert fitted.fields is not None and fitted.fields["who"] == {"name": "b"}
    assert fitted.reason == "the schema does not name all its fields"
    assert protobuf().fit(message(state=7)).reason == (
        "it is no message of the schema: state has 7, which its enum does not name"
    )


def test_an_extension_of_a_message_is_kept() -> None:
    """Of proto2, in the same descriptor set: its field is known, and has no column."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto2")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="id", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    inner.extension_range.add(start=100, end=200)
    order = file.message_type.add(name="Order")
    order.field.add(name="all", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED, type_name=".shop.Inner")
    file.extension.add(
        name="note", number=100, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL, extendee=".shop.Inner"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    value, descriptor = made(all=[{"id": 1}, {"id": 2}]), pool.FindExtensionByName("shop.note")
    reader = ProtobufReader(
        protobuf_schema(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "shop.Order")
    )
    assert reader.fit(value.SerializeToString()) == ({"all": [{"id": 1}, {"id": 2}]}, None)
    value.all[1].Extensions[descriptor] = "kept"
    fields, reason = reader.fit(value.SerializeToString())
    assert fields == {"all": [{"id": 1}, {"id": 2}]} and reason == "the schema does not name all its fields"


def test_a_message_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"has no message 'shop\.Order2'"):
        protobuf("shop.Order2")
    with pytest.raises(InvalidConfig, match="has no message"):
        ProtobufReader(protobuf_schema(b"\xff\xff", "shop.Order"))


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_of_both_are_arrow_columns_and_ids_are_compared() -> None:
    values = {
        "avro": (json.dumps(ORDER), b"\0\0\0\0\x07", avro(order(5))),
        "protobuf": (
            protobuf_schema(descriptors().SerializeToString(), "shop.Order"),
            b"\0\0\0\0\x07\0",
            message(id=5, count={"x": 1}),
        ),
    }
    for name, (schema, prefix, value) in values.items():
        rows = fit_rows(records([prefix + value, value, None]), value_reader(ValueFormat(name, schema, 7))).to_pylist()
        assert [row["value"] and row["value"]["id"] for row in rows] == [5, None, None]
        assert [row["quarantine"] and row["quarantine"]["value"] for row in rows] == [None, value, None]
        assert "not with the id of the schema" in rows[1]["quarantine"]["reason"]


def test_a_value_that_no_column_holds_keeps_no_other_out_of_the_table() -> None:
    """Avro's bytes of a decimal may have more digits than its schema says."""
    plain = json.loads(json.dumps(ORDER).replace('"logicalType": "decimal", ', ""))
    out = BytesIO()
    fastavro.schemaless_writer(
        out,
        fastavro.parse_schema(json.loads(json.dumps(plain).replace(', "logicalType": "uuid"', ""))),
        order(1) | {"amount": b"\x7f" * 12},
    )
    reader = value_reader(ValueFormat("avro", json.dumps(ORDER)))
    rows = fit_rows(records([avro(order(1)), out.getvalue(), avro(order(3))]), reader).to_pylist()
    assert [row["value"] and row["value"]["id"] for row in rows] == [1, None, 3]
    assert rows[1]["quarantine"]["value"] == out.getvalue()
    assert rows[1]["quarantine"]["reason"].startswith("a column cannot hold it: ")
