"""Which values are JSON objects of a schema: each one comes back equal, or its bytes are kept."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.errors import InvalidConfig
from tidelog.jobs.json_values import ObjectParser, parse_values

NAMES = ("a", "b", "ä", "c d")
SIMPLE: tuple[DataType, ...] = (
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(5, 2),
    DecimalType(38, 0),
    StringType(),
    BinaryType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
)
INTEGERS: dict[type[DataType], int] = {ByteType: 7, ShortType: 15, IntegerType: 31, LongType: 63}
ODD = (
    *("null", "true", "1", "-1", "-0", "1.0", "1.5", "1e2", "1E400", "NaN", "Infinity", "01", "+1", "0x1", '""', '"1"'),
    *("[]", "{}", "[1]", '{"a":1}', '{"a":1,"a":2}', "'a'", '"\\ud800"', '"\\ud83d\\ude00"', '"a\x01"', '"\\u0000"'),
    *("9" * 19, "9" * 40, "12345678901234567890.1", "1.239", "0.1000000000000000055", "1e99999999999999999999"),
    *('"2024-05-01"', '"2024-02-30"', '"20240501"', '"2024-05-01T12:00:00.1234567"', '"2024-05-01 24:00:00"'),
    *('"0001-01-01T00:00:00+23:59"', '"QQ=="', '"QR=="', '"QQ"', '"Q Q=="', "[" * 5000, '{"a":' * 5000, "1 2", "/**/1"),
)
"""Texts that are of one type, of another one, or no JSON."""
AROUND = (b"", b" ", b"\r\n\t", b",", b"}", b"]", b"\0", b" garbage", b"{}", b"\xef\xbb\xbf", b"\xff", b"\x0b", b"//")


def fields_of(kinds: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    named = st.lists(
        st.tuples(st.sampled_from(NAMES), kinds, st.booleans()), max_size=3, unique_by=lambda each: each[0]
    )
    return named.map(lambda each: StructType([StructField(*one) for one in each]))


KINDS = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()),
        st.builds(lambda kind, nulls: MapType(StringType(), kind, nulls), inner, st.booleans()),
        fields_of(inner),
    ),
    max_leaves=4,
)
SCHEMAS = fields_of(KINDS).filter(lambda schema: bool(schema.fields))


def shortest(number: float) -> str:
    """The shortest decimal of a 32-bit number."""
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if packed(float(text)) == packed(number))


def packed(number: float) -> bytes:
    try:
        return struct.pack("<f", number)
    except OverflowError:
        return struct.pack("<f", math.inf)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


TEXTS: dict[type[DataType], st.SearchStrategy[str]] = {
    BooleanType: st.sampled_from(("true", "false")),
    FloatType: st.floats(width=32, allow_nan=False, allow_infinity=False).map(shortest),
    DoubleType: st.floats(allow_nan=False, allow_infinity=False).map(repr),
    StringType: st.text(max_size=5).flatmap(lambda text: st.sampled_from((json.dumps(text), quoted(text)))),
    BinaryType: st.binary(max_size=5).map(lambda data: quoted(base64.b64encode(data).decode())),
    DateType: st.dates().map(lambda day: quoted(day.isoformat())),
    TimestampType: st.datetimes(timezones=st.just(UTC)).map(lambda time: quoted(time.isoformat())),
    TimestampNTZType: st.datetimes().map(lambda time: quoted(time.isoformat(" "))),
}
"""JSON of values of a type."""


def conforming(kind: DataType) -> st.SearchStrategy[str]:
    """JSON of values of the type."""
    match kind:
        case StructType():
            each = [conforming(field.dataType) for field in kind.fields]
            return st.tuples(*each).map(
                lambda found: pairs(zip((field.name for field in kind.fields), found, strict=True))
            )
        case ArrayType():
            return st.lists(conforming(kind.elementType), max_size=3).map(lambda found: f"[{','.join(found)}]")
        case MapType():
            entries = st.dictionaries(st.text(max_size=3), conforming(kind.valueType), max_size=3)
            return entries.map(lambda found: pairs(found.items()))
        case DecimalType():
            most = 10**kind.precision - 1
            return st.integers(-most, most).map(lambda found: f"{found}e-{kind.scale}" if kind.scale else str(found))
    if type(kind) in INTEGERS:
        limit = 1 << INTEGERS[type(kind)]
        return st.integers(-limit, limit - 1).map(str)
    return TEXTS[type(kind)]


def pairs(found: Any) -> str:
    return "{" + ",".join(f"{quoted(name)}: {text}" for name, text in found) + "}"


def loosely(kind: DataType) -> st.SearchStrategy[str]:
    """JSON that may be of the type, of another one, have other fields or some twice, or no JSON."""
    odd = st.sampled_from(ODD)
    if isinstance(kind, StructType):
        by_name = {field.name: field.dataType for field in kind.fields}
        one = st.sampled_from((*by_name, *NAMES)).flatmap(
            lambda name: st.tuples(st.just(name), loosely(by_name[name]) if name in by_name else odd)
        )
        return st.lists(one, max_size=3).map(pairs)
    return conforming(kind) | odd


@st.composite
def any_values(draw: st.DrawFn, schema: StructType) -> bytes:
    text = draw(loosely(schema) | conforming(schema) | st.sampled_from(ODD) | st.text(max_size=10))
    value = bytearray(
        draw(st.sampled_from(AROUND)) + text.encode("utf-8", "surrogatepass") + draw(st.sampled_from(AROUND))
    )
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        at = draw(st.integers(0, len(value)))
        value[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2) | st.sampled_from(AROUND))
    return bytes(value)


@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), any_values(schema))))
@example((StructType([StructField("a", StructType([]))]), b'{"b": 1e99999999999999999999,"a": {}}'))
@example((StructType([StructField("b", DoubleType())]), b'{"b": 1e99999999999999999999}'))
@example((StructType([StructField("b", DecimalType(38, 2))]), b'{"b": 1e99999999999999999999}'))
def test_each_value_comes_back_equal_or_its_bytes_are_kept(given: tuple[StructType, bytes]) -> None:
    """Goal: nothing of a value is lost. Method: any bytes, most of them almost an object of the schema, against a plain
    reading of the JSON, with decimal numbers."""
    schema, value = given
    (row,) = column(schema, value)
    if row["malformed"]:
        assert row["data"] is None and not row["has_more"]
        return
    original = plainly(value)
    assert equal(schema, row["data"], original), (row["data"], original)
    assert row["has_more"] == names_more(schema, original), "else the bytes are kept"


@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), conforming(schema))))
def test_each_object_of_the_schema_is_taken_as_one(given: tuple[StructType, str]) -> None:
    schema, text = given
    (row,) = column(schema, f"\r\n{text} ".encode())
    assert not row["malformed"] and not row["has_more"]
    assert equal(schema, row["data"], plainly(text.encode()))


def column(schema: StructType, *values: bytes | None) -> list[dict[str, Any]]:
    parsed: Any = parse_values(json.dumps(schema.jsonValue()), pa.array(values, pa.binary()))
    return list(parsed.to_pylist())


def plainly(value: bytes) -> Any:
    def object_of(found: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(found)) == len(found), "a field is there twice"
        return dict(found)

    def constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(
        value.decode(), parse_float=number, parse_int=number, parse_constant=constant, object_pairs_hook=object_of
    )


def number(text: str) -> Decimal | str:
    """A number of JSON; its text if its exponent is beyond Decimal, as no column can contain it either."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def names_more(kind: DataType, original: Any) -> bool:
    """Whether the JSON has fields that the type does not name."""
    if original is None:
        return False
    match kind:
        case StructType():
            kinds = {field.name: field.dataType for field in kind.fields}
            return any(name not in kinds or names_more(kinds[name], each) for name, each in original.items())
        case ArrayType():
            return any(names_more(kind.elementType, each) for each in original)
        case MapType():
            return any(names_more(kind.valueType, each) for each in original.values())
    return False


def equal(kind: DataType, found: Any, original: Any) -> bool:
    """Whether a cell of a column says what the JSON says. original: with Decimal for numbers."""
    if found is None or original is None:
        return found is None and original is None
    match kind:
        case StructType():
            return type(original) is dict and all(
                equal(field.dataType, found[field.name], original.get(field.name)) for field in kind.fields
            )
        case ArrayType():
            return (
                type(original) is list
                and len(found) == len(original)
                and all(equal(kind.elementType, *each) for each in zip(found, original, strict=True))
            )
        case MapType():
            entries = dict(found)
            return (
                type(original) is dict
                and entries.keys() == original.keys()
                and all(equal(kind.valueType, entries[name], original[name]) for name in entries)
            )
        case BooleanType():
            return found is original
        case DoubleType():
            return type(original) is Decimal and Decimal(repr(found)) == original
        case FloatType():
            return type(original) is Decimal and Decimal(shortest(found)) == original
        case BinaryType():
            return bool(base64.b64encode(found).decode() == original)
        case DateType():
            return type(original) is str and found == date.fromisoformat(original)
        case TimestampType():
            time = datetime.fromisoformat(original)
            return bool(found == (time if time.tzinfo else time.replace(tzinfo=UTC)))
        case TimestampNTZType():
            return bool(found == datetime.fromisoformat(original))
    return type(original) is (str if isinstance(kind, StringType) else Decimal) and bool(found == original)


STATUS = StructType([StructField("status", IntegerType()), StructField("level", StringType())])


@pytest.mark.parametrize(
    "value",
    [
        b'{"status":1} garbage',
        b'{"status":1}{"status":2}',
        b'{"status":1} {}',
        b'{"status":1},',
        b'{"status":1}}',
        b'{"status":1}]',
        b'{"status":1}\0',
        b'{"status":1,}',
        b"{'status':1}",
        b"{status:1}",
        b'{"status":NaN}',
        b'{"status":1,"status":1}',
        b'{"status":"1"}',
        b'{"status":true}',
        b'{"status":1.0}',
        b'{"status":2147483648}',
        b'{"status":' + b"9" * 5000 + b"}",
        b'{"level":1}',
        b'{"level":true}',
        b'{"level":{}}',
        b'{"level":"\xff"}',
        b'{"level":"\\ud800"}',
        b'{"other":' * 100_000,
        b"null",
        b"[1]",
        b'"{}"',
        b"",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
    ],
)
def test_what_is_no_object_of_the_schema_is_malformed(value: bytes) -> None:
    assert column(STATUS, value) == [{"data": None, "malformed": True, "has_more": False}]


@pytest.mark.parametrize("zone", ["+02:60", "-00:99", "+24:00", "+2:00", "+0200", "z", " Z"])
def test_what_is_no_zone_makes_no_time(zone: str) -> None:
    schema = StructType([StructField("at", TimestampType())])
    (row,) = column(schema, f'{{"at":"2024-05-01T12:00:00{zone}"}}'.encode())
    assert row["malformed"] and row["data"] is None


def test_fields_of_no_name_are_told_at_each_depth_and_a_missing_value_is_not_malformed() -> None:
    inner = StructType([StructField("a", ArrayType(STATUS)), StructField("m", MapType(StringType(), STATUS))])
    more = [b'{"Status":1}', b'{"a":[{"status":1,"x":null}]}', b'{"m":{"k":{"":0}}}']
    assert [row["has_more"] for row in column(inner, *more, b'{"a":[null,{}],"m":{}}', None)] == [True] * 3 + [
        False
    ] * 2
    assert column(STATUS, None) == [{"data": None, "malformed": False, "has_more": False}]


def test_a_field_that_must_be_there_is() -> None:
    schema = StructType([StructField("status", IntegerType(), nullable=False)])
    assert [row["malformed"] for row in column(schema, b"{}", b'{"status":null}', b'{"status":0}')] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("kind", [DayTimeIntervalType(), MapType(IntegerType(), StringType())])
def test_a_type_that_no_json_is_parsed_to_is_named(kind: DataType) -> None:
    schema = StructType([StructField("outer", StructType([StructField("inner", ArrayType(kind))]))])
    with pytest.raises(InvalidConfig, match=r"--schema: outer\.inner\[\] has type (interval|map).*use one of BOOLEAN"):
        ObjectParser(schema)
