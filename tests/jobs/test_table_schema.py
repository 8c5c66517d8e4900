"""The schemas that a table takes after another one, and the values that fit them: without Spark's JVM."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

from tests.jobs.table_records import records
from tidelog.errors import InvalidConfig
from tidelog.jobs.table_rows import JsonReader, fit_rows
from tidelog.jobs.table_schema import (
    AddedField,
    WidenedField,
    ensure_storable,
    iceberg_schema,
    iceberg_type,
    is_widening,
    schema_changes,
    table_columns,
)

INT = types.IntegerType()
WIDER: dict[str, types.DataType] = {"int": types.LongType(), "float": types.DoubleType()}
SIMPLE = st.sampled_from(
    [
        types.IntegerType(),
        types.LongType(),
        types.FloatType(),
        types.DoubleType(),
        types.BooleanType(),
        types.StringType(),
        types.BinaryType(),
        types.DateType(),
        types.TimestampType(),
        types.DecimalType(9, 2),
        types.DecimalType(20, 4),
    ]
)
NAMES = st.text("abcdeé .", min_size=1, max_size=4)
KINDS: st.SearchStrategy[types.DataType] = st.recursive(
    SIMPLE,
    lambda inner: (
        st.builds(types.ArrayType, inner)
        | st.builds(types.MapType, st.just(types.StringType()), inner)
        | st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda found: struct(**found))
    ),
    max_leaves=6,
)
VALUES = st.dictionaries(NAMES, KINDS, min_size=1, max_size=4).map(lambda found: struct(**found))


def struct(**fields: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in fields.items()])


def changes(before: types.StructType, now: types.StructType) -> list[Any]:
    return schema_changes(iceberg_schema(table_columns(before)), iceberg_schema(table_columns(now)), "lake.shop.orders")


def applied(kind: Any, change: Any, path: str = "value") -> Any:
    """A type of Iceberg after one change, without ids."""
    if isinstance(change, WidenedField) and change.path == path:
        assert kind == change.before
        return change.kind
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = {field["name"]: applied(field["type"], change, f"{path}.{field['name']}") for field in kind["fields"]}
        if isinstance(change, AddedField) and change.parent == path:
            fields[change.name] = change.kind
        return {"type": "struct", "fields": [{"name": name, "type": each} for name, each in fields.items()]}
    inner = ("element",) if kind["type"] == "list" else ("key", "value")
    return {"type": kind["type"], **{name: applied(kind[name], change, f"{path}.{name}") for name in inner}}


def grown(draw: Any, kind: types.DataType) -> types.DataType:
    """A schema that the rules allow after this one."""
    match kind:
        case types.StructType():
            fields = [types.StructField(each.name, grown(draw, each.dataType)) for each in kind.fields]
            if draw(st.booleans()):
                fields.insert(draw(st.integers(0, len(fields))), types.StructField("added!", draw(KINDS)))
            return types.StructType(fields)
        case types.ArrayType():
            return types.ArrayType(grown(draw, kind.elementType))
        case types.MapType():
            return types.MapType(kind.keyType, grown(draw, kind.valueType))
        case types.DecimalType():
            return types.DecimalType(kind.precision + draw(st.integers(0, 5)), kind.scale)
    return WIDER.get(kind.simpleString(), kind) if draw(st.booleans()) else kind


@given(st.data(), VALUES)
def test_a_schema_that_grew_by_the_rules_is_reached_by_the_changes(data: st.DataObject, before: Any) -> None:
    """Applied one after the other, the changes make the new schema of the old one: nothing is forgotten."""
    now: Any = grown(data.draw, before)
    kind = iceberg_type(before, count(1))
    for change in changes(before, now):
        kind = applied(kind, change)
    assert normal(kind) == normal(iceberg_type(now, count(1)))


@given(VALUES, VALUES)
def test_any_other_schema_is_refused_or_only_grows(before: Any, now: Any) -> None:
    """Of two arbitrary schemas: if the second is taken, each field of the first is in it, as it was or wider."""
    try:
        found = changes(before, now)
    except InvalidConfig as error:
        assert error.message.startswith("table lake.shop.orders cannot take rows of this schema: ")  # noqa: PT017
        assert before != now
    else:
        kind = iceberg_type(before, count(1))
        for change in found:
            kind = applied(kind, change)
        assert normal(kind) == normal(iceberg_type(now, count(1)))


def normal(kind: Any) -> Any:
    """A type without ids; fields in order of their names."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return sorted((field["name"], normal(field["type"])) for field in kind["fields"]), "struct"
    return kind["type"], *(normal(kind[name]) for name in ("element", "key", "value") if name in kind)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (struct(a=types.LongType()), struct(a=types.IntegerType()), "value.a is long, and does not become int"),
        (struct(a=types.IntegerType()), struct(a=types.FloatType()), "value.a is int, and does not become float"),
        (struct(a=types.IntegerType()), struct(a=types.StringType()), "value.a is int, and does not become string"),
        (
            struct(a=types.DecimalType(9, 2)),
            struct(a=types.DecimalType(12, 3)),
            "value.a is decimal(9, 2), and does not become decimal(12, 3)",
        ),
        (
            struct(a=types.IntegerType(), b=types.DateType()),
            struct(a=types.IntegerType()),
            "the schema lacks its field value.b",
        ),
        (
            struct(a=types.IntegerType()),
            struct(a=types.ArrayType(types.IntegerType())),
            "value.a is int, not list<int>",
        ),
        (
            struct(a=types.MapType(types.IntegerType(), types.IntegerType())),
            struct(a=types.MapType(types.LongType(), types.LongType())),
            "value.a.key is int, and does not become long",
        ),
    ],
)
def test_each_other_change_is_refused_by_name(before: types.StructType, now: types.StructType, said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        changes(before, now)
    assert said in refused.value.message and "name another table with --to" in refused.value.message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (struct(id=INT, ID=INT), "value.id and value.ID"),
        (struct(**{"a": struct(b=INT), "a.b": INT}), "value.a.b and value.a.b"),
        (struct(a=types.ArrayType(struct(b=INT, B=INT))), "value.a.element.b and value.a.element.B"),
        (struct(a=types.MapType(types.StringType(), struct())), "value.a.value has no fields"),
        (struct(a=types.DecimalType(39, 2)), "value.a has 39 digits"),
    ],
)
def test_what_readers_do_not_tell_apart_is_refused_before_there_is_a_table(value: types.StructType, said: str) -> None:
    """A field cannot be taken out of a table again by the job, and Spark writes no file with either."""
    with pytest.raises(InvalidConfig, match=re.escape(said)):
        ensure_storable(table_columns(value))


def test_fields_with_the_names_of_columns_or_of_what_is_around_them_are_no_conflict() -> None:
    ensure_storable(table_columns(struct(**{"a": struct(a=struct(a=INT)), "offset": INT, "headers": INT, "a.c": INT})))


def test_a_table_of_bytes_does_not_become_one_of_fields() -> None:
    raw, parsed = iceberg_schema(table_columns(None)), iceberg_schema(table_columns(struct(a=types.IntegerType())))
    with pytest.raises(InvalidConfig, match=r"value is binary, not struct<a int>; it has no column 'quarantine'"):
        schema_changes(raw, parsed, "t")
    with pytest.raises(InvalidConfig, match="which this job would leave empty"):
        schema_changes(parsed, raw, "t")


@given(st.integers(1, 38), st.integers(0, 10), st.integers(1, 38), st.integers(0, 10))
def test_a_wider_decimal_holds_each_number_of_the_narrower(p: int, s: int, q: int, t: int) -> None:
    assert is_widening(f"decimal({p}, {s})", f"decimal({q},{t})") == (s == t and p < q)


# --- values -----------------------------------------------------------------------------------------------------------

ORDER = types.StructType(
    [
        types.StructField("id", types.ByteType(), nullable=False),
        types.StructField("amount", types.DecimalType(9, 2)),
        types.StructField("who", struct(name=types.StringType(), tags=types.ArrayType(types.StringType()))),
    ]
)


@pytest.mark.parametrize(
    ("value", "fields", "reason"),
    [
        (b'{"id": 1, "amount": 1.5}', {"id": 1, "amount": Decimal("1.50"), "who": None}, None),
        (b'{"id": 1, "colour": 2}', {"id": 1, "amount": None, "who": None}, "the schema does not name colour"),
        (
            b'{"id": 1, "who": {"name": "a", "tags": null, "x": 1}}',
            {"id": 1, "amount": None, "who": {"name": "a", "tags": None}},
            "the schema does not name who.x",
        ),
        (b'{"id": 128}', None, "id is no tinyint"),
        (b'{"id": 1, "amount": 1.555}', None, "amount is no decimal(9,2)"),
        (b'{"id": 1, "who": {"tags": [1]}}', None, "who.tags is no array<string>"),
        (b'{"id": 1, "who": []}', None, "who is no struct<name:string,tags:array<string>>"),
        (b'{"amount": 1}', None, "id is absent or null, and NOT NULL in the schema"),
        (b"[]", None, "it is no object"),
        (b'{"id": 1, "id": 2}', None, "it is no JSON: an object names a field twice"),
        (b'{"id": NaN}', None, "it is no JSON: NaN is no number"),
        (b'{"id"', None, "it is no JSON: Expecting ':' delimiter at character 5"),
        (b"\xff", None, "it is no JSON: byte 0 is no UTF-8"),
        (b"", None, "it is no JSON: Expecting value at character 0"),
    ],
)
def test_a_value_has_fields_or_the_reason_why_not(value: bytes, fields: Any, reason: str | None) -> None:
    assert JsonReader(ORDER.json()).fit(value) == (fields, reason)


@given(st.lists(st.none() | st.binary(max_size=8) | st.integers(-300, 300).map(lambda n: b'{"id": %d}' % n)))
def test_no_value_is_lost(values: list[bytes | None]) -> None:
    """Each record is a row; what its fields do not say is in quarantine, byte for byte."""
    rows = fit_rows(records(values), JsonReader(ORDER.json())).to_pylist()
    assert [row["offset"] for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        kept = row["quarantine"] and row["quarantine"]["value"]
        if row["value"] is not None:
            assert value is not None and kept is None and json.loads(value) == {"id": row["value"]["id"]}
        else:
            assert kept == value and (value is None or row["quarantine"]["reason"])


def test_without_a_schema_the_bytes_are_the_column() -> None:
    batch = fit_rows(records([b"a", None]), None)
    assert batch.schema.names == table_columns(None).names
    assert [(row["offset"], row["value"]) for row in batch.to_pylist()] == [(0, b"a"), (1, None)]
