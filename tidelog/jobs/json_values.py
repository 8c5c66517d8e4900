"""Which values are JSON objects of a schema, and their fields: what the mode "json" of an archive stores. Pure.

One parser decides it: that of Python's standard library, made strict. Spark's own fills fields from values that are no
JSON, or of another type, and does not say so.
Invariants: the fields say all that an accepted value says (absent and null are the same). Its bytes may be dropped
then, unless it `has_more`: fields that the schema does not name. Every other value is malformed.
Source: RFC 8259.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from tidelog.errors import InvalidConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

PARSABLE: Final = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, "
    "ARRAY, STRUCT and MAP with keys of STRING"
)
"""The types of fields."""
_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:[0-5]\d)?", re.ASCII)
"""Python would take a zone of 99 minutes for one."""
_EXACT_INTEGER: Final = 1 << 53
_FLOAT_DIGITS: Final = range(1, 10)
"""Numbers of decimal digits by which a 32-bit number may be told from all others."""


def schema_of(text: str) -> StructType:
    """A Spark schema in Spark's JSON or as DDL (`level string, status int`). Raises InvalidConfig."""
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)
    except Exception as error:
        cause = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InvalidConfig(
            f"--schema {text[:80]!r} is no schema: {cause} Write it as DDL, for example 'level STRING, status INT', or "
            "as the JSON of a Spark schema"
        ) from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise InvalidConfig(f"--schema {text[:80]!r} has no columns; write it as 'level STRING, status INT'")
    return schema


class ParsedObject(NamedTuple):
    """An object of the schema. has_more: it has fields, at any depth, that the schema does not name."""

    fields: dict[str, Any]
    has_more: bool


class _NumberText(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()


class _Another(ValueError):
    """The value is none of the type, or the type cannot hold it as it is."""


_Convert = Callable[[Any], Any]
"""Converts a value of the decoder to one of Arrow. Raises ValueError or ArithmeticError."""


class ObjectParser:
    """Parses values with one schema."""

    def __init__(self, schema: StructType) -> None:
        """Raises InvalidConfig for a type that no JSON is parsed to."""
        self.schema = schema
        self._has_more = False
        self.reason = ""
        """Of the last value: why it is no object of the schema, or which of its fields the schema does not name; empty
        if the fields say all."""
        self._convert = self._struct(schema, "")

    def parse(self, value: bytes) -> ParsedObject | None:
        """The fields of an object of the schema; None: the value is none."""
        self._has_more, self.reason = False, ""
        try:
            fields = self._convert(_DECODER.decode(value.decode()))
        except (ValueError, ArithmeticError, RecursionError) as error:
            # a type that cannot hold it; more levels than the stack
            self.reason = self.reason or _reason_of(error)
            return None
        return ParsedObject(fields, self._has_more)

    def _struct(self, schema: StructType, path: str) -> _Convert:
        fields = [
            (each.name, self._converter(each.dataType, f"{path}{each.name}"), each.nullable) for each in schema.fields
        ]
        types = {each.name: each.dataType.simpleString() for each in schema.fields}

        def convert(found: Any) -> dict[str, Any]:
            if type(found) is not dict:
                raise _Another("it is no object")
            present, converted, name = 0, {}, ""
            try:
                for name, each, is_nullable in fields:
                    entry = found.get(name)
                    if entry is not None:
                        converted[name] = each(entry)
                        present += 1
                    elif is_nullable:
                        converted[name] = None
                        present += name in found
                    else:
                        self.reason = f"{path}{name} is absent or null, and NOT NULL in the schema"
                        raise _Another
            except (ValueError, ArithmeticError):
                self.reason = self.reason or f"{path}{name} is no {types[name]}"  # the innermost field comes first
                raise
            if present != len(found):
                if not self._has_more:
                    self.reason = f"the schema does not name {path}{next(each for each in found if each not in types)}"
                self._has_more = True
            return converted

        return convert

    def _array(self, element: _Convert, *, has_nulls: bool) -> _Convert:
        def convert(found: Any) -> list[Any]:
            if type(found) is not list or (not has_nulls and None in found):
                raise _Another
            return [None if each is None else element(each) for each in found]

        return convert

    def _map(self, entry: _Convert, *, has_nulls: bool) -> _Convert:
        def convert(found: Any) -> list[tuple[str, Any]]:
            if type(found) is not dict or (not has_nulls and None in found.values()):
                raise _Another
            return [(_text(key), None if each is None else entry(each)) for key, each in found.items()]

        return convert

    def _converter(self, kind: DataType, path: str) -> _Convert:
        """path: of the field, for an error."""
        from pyspark.sql import types

        match kind:
            case types.StructType():
                return self._struct(kind, f"{path}.")
            case types.ArrayType():
                return self._array(self._converter(kind.elementType, f"{path}[]"), has_nulls=kind.containsNull)
            case types.MapType() if isinstance(kind.keyType, types.StringType):
                return self._map(self._converter(kind.valueType, f"{path}{{}}"), has_nulls=kind.valueContainsNull)
            case types.DecimalType():
                exactly = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
                return partial(_decimal, Decimal((0, (1,), -kind.scale)), exactly)
        name = kind.simpleString()
        if name in _INTEGERS:
            return partial(_integer, 1 << _INTEGERS[name] - 1)
        if name not in _SIMPLE:
            raise InvalidConfig(f"--schema: {path} has type {name}, to which no JSON is parsed: use one of {PARSABLE}")
        return _SIMPLE[name]


# --- values of one type -------------------------------------------------------------------------------------------


def _boolean(found: Any) -> bool:
    if type(found) is not bool:
        raise _Another
    return found


def _integer(limit: int, found: Any) -> int:
    if type(found) is not int or not -limit <= found < limit:
        raise _Another
    return found


def _double(found: Any) -> float:
    """Accepts a number that the shortest decimal of its 64-bit number is equal to."""
    if type(found) is int:
        number = float(found)
        if -_EXACT_INTEGER <= found <= _EXACT_INTEGER or Decimal(repr(number)) == found:
            return number
    elif type(found) is _NumberText:
        number = float(found)
        if (shortest := repr(number)) == found or Decimal(shortest) == Decimal(found):
            return number
    raise _Another


def _float(found: Any) -> float:
    """As `_double`, of 32 bits."""
    if type(found) is not int and type(found) is not _NumberText:
        raise _Another
    number = _of_32_bits(float(found))
    for digits in _FLOAT_DIGITS:
        shortest = f"{number:.{digits}g}"
        if _of_32_bits(float(shortest)) == number:
            if Decimal(shortest) == Decimal(found):
                return number
            break
    raise _Another


def _of_32_bits(number: float) -> float:
    """The nearest 32-bit number, infinity beyond them."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.inf


def _decimal(unit: Decimal, exactly: Context, found: Any) -> Decimal:
    """Accepts a number that has no more digits than the type. unit: of its last digit."""
    if type(found) is not int and type(found) is not _NumberText:
        raise _Another
    return Decimal(found).quantize(unit, context=exactly)


def _text(found: Any) -> str:
    if type(found) is not str:
        raise _Another
    if not found.isascii():
        found.encode()  # an escape may be half a pair of surrogates, which UTF-8 has not
    return found


def _binary(found: Any) -> bytes:
    """Accepts base64 with padding, as Spark writes it."""
    data = base64.b64decode(_text(found), validate=True)
    if base64.b64encode(data).decode() != found:  # unused bits are not 0
        raise _Another
    return data


def _date(found: Any) -> date:
    if not _DATE.fullmatch(_text(found)):
        raise _Another
    return date.fromisoformat(found)


def _timestamp(found: Any) -> datetime:
    """Accepts a time of ISO 8601, which is in UTC unless it says otherwise."""
    if not _TIME.fullmatch(_text(found)):
        raise _Another
    time = datetime.fromisoformat(found)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _local_time(found: Any) -> datetime:
    """Accepts the same without a zone."""
    if not (match := _TIME.fullmatch(_text(found))) or match[2]:
        raise _Another
    return datetime.fromisoformat(found)


_SIMPLE: Final[dict[str, _Convert]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "string": _text,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _local_time,
}


# --- JSON ---------------------------------------------------------------------------------------------------------


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Another("it is no JSON: an object names a field twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise _Another(f"it is no JSON: {text} is no number")


def _reason_of(error: Exception) -> str:
    """Why the decoder refused a value."""
    match error:
        case _Another():
            return str(error)
        case UnicodeDecodeError():
            return f"it is no JSON: byte {error.start} is no UTF-8"
        case json.JSONDecodeError():
            return f"it is no JSON: {error.msg} at character {error.pos}"
        case RecursionError():
            return "it is nested too deeply"
    return f"it is no JSON: {error}"


_DECODER: Final = json.JSONDecoder(parse_float=_NumberText, parse_constant=_no_number, object_pairs_hook=_unique)


# --- columns ------------------------------------------------------------------------------------------------------


def json_column(values: Column, schema: str) -> Column:
    """The columns `data` (null where there is no object), `malformed` and `has_more` of each value, as one. schema: of
    the objects, Spark's JSON. Raises InvalidConfig as `ObjectParser`."""
    from pyspark.sql.types import BooleanType, StructType
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    data = _parser_of(schema).schema.toNullable()
    kind = StructType().add("data", data).add("malformed", BooleanType()).add("has_more", BooleanType())
    # Spark's own arrow_udf asks for pandas, which is not used.
    return UserDefinedFunction(
        partial(parse_values, schema), kind, name="json_values", evalType=PythonEvalType.SQL_SCALAR_ARROW_UDF
    )(values)


@lru_cache(maxsize=16)
def _parser_of(schema: str) -> ObjectParser:
    return ObjectParser(schema_of(schema))


def parse_values(schema: str, values: pa.Array[Any]) -> pa.StructArray:
    """The columns of `json_column` for an Arrow array of values. schema: Spark's JSON."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    parser = _parser_of(schema)
    data: list[dict[str, Any] | None] = []
    malformed, has_more = [], []
    for value in values.to_pylist():
        found = None if value is None else parser.parse(value)
        data.append(None if found is None else found.fields)
        malformed.append(value is not None and found is None)
        has_more.append(found is not None and found.has_more)
    columns: list[Any] = [
        pa.array(data, to_arrow_type(parser.schema.toNullable(), timezone="UTC")),
        pa.array(malformed, pa.bool_()),
        pa.array(has_more, pa.bool_()),
    ]
    return pa.StructArray.from_arrays(columns, ["data", "malformed", "has_more"])
