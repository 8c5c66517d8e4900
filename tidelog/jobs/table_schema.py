"""The schema of a table of `tidelog job table`: Iceberg's types of Spark's, and which changes a table takes. Pure.

Types are those of Iceberg's JSON: a text such as `long`, or an object with the fields and their ids.
Rules: a field may be added, and int become long, float double, decimal(P, S) one of more digits before the point,
except as the key of a map. All else would alter or hide rows that are there, and is refused.
Source: "Schema Evolution" and "Appendix C: JSON serialization" of Iceberg's table specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

IcebergType = Any
"""A text, or an object of JSON."""

VALUE: Final = "value"
QUARANTINE: Final = "quarantine"
TYPE_OF: Final = {
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""Spark's simple types, and what Iceberg calls them; it has no integers of 8 and 16 bits."""
DIGITS_MAX: Final = 38
"""Of a decimal, in Iceberg, Parquet and Spark."""
WIDENINGS: Final = {("int", "long"), ("float", "double")}
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")


@dataclass(frozen=True, slots=True)
class AddedField:
    """A field that a table gets."""

    parent: str
    """The path of the struct."""
    name: str
    kind: IcebergType

    def __str__(self) -> str:
        return f"{self.parent}.{self.name} {type_text(self.kind)}"


@dataclass(frozen=True, slots=True)
class WidenedField:
    """A field that gets a wider type."""

    path: str
    before: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path} from {self.before} to {self.kind}"


SchemaChange = AddedField | WidenedField


def table_columns(value: StructType | None) -> StructType:
    """The columns of a table as Spark's types. value: the fields of values; None: their bytes are the column."""
    from pyspark.sql import types

    record = [
        types.StructField("partition", types.IntegerType()),
        types.StructField("offset", types.LongType()),
        types.StructField("timestamp", types.TimestampType()),
        types.StructField("timestampMs", types.LongType()),
        types.StructField("timestampType", types.IntegerType()),
        types.StructField(
            "headers",
            types.ArrayType(
                types.StructType(
                    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
                )
            ),
        ),
        types.StructField("key", types.BinaryType()),
    ]
    if value is None:
        return types.StructType([*record, types.StructField(VALUE, types.BinaryType())])
    quarantine = types.StructType(
        [types.StructField("value", types.BinaryType()), types.StructField("reason", types.StringType())]
    )
    return types.StructType(
        [*record, types.StructField(VALUE, stored_type(value)), types.StructField(QUARANTINE, quarantine)]
    )


def stored_type(kind: DataType) -> Any:
    """The type as a table stores it: each field may be null, and integers have at least 32 bits."""
    from pyspark.sql import types

    match kind:
        case types.StructType():
            return types.StructType(
                [types.StructField(field.name, stored_type(field.dataType)) for field in kind.fields]
            )
        case types.ArrayType():
            return types.ArrayType(stored_type(kind.elementType))
        case types.MapType():
            return types.MapType(kind.keyType, stored_type(kind.valueType))
        case types.ByteType() | types.ShortType():
            return types.IntegerType()
    return kind


def ensure_storable(kind: DataType, path: str = "", taken: dict[str, str] | None = None) -> None:
    """Raise InvalidConfig for columns that Iceberg or a reader of the table refuses: two fields whose paths differ only
    in case, or not at all (`a.b` beside a field b of a), a struct without fields, a decimal of more than 38 digits. It
    must be before the table is made, or gets the field: nothing that the job writes fits it any more. taken: the paths
    so far, as they were written."""
    from pyspark.sql import types

    taken = {} if taken is None else taken
    if path and (other := taken.setdefault(path.lower(), path)) is not path:
        raise InvalidConfig(
            f"--schema has two fields that most readers of a table take for one, {other} and {path}: rename one of them"
        )
    match kind:
        case types.StructType():
            if not kind.fields:
                raise InvalidConfig(f"--schema: {path} has no fields, and Parquet stores no such struct: remove it")
            for field in kind.fields:
                ensure_storable(field.dataType, f"{path}.{field.name}" if path else field.name, taken)
        case types.ArrayType():
            ensure_storable(kind.elementType, f"{path}.element", taken)
        case types.MapType():
            ensure_storable(kind.keyType, f"{path}.key", taken)
            ensure_storable(kind.valueType, f"{path}.value", taken)
        case types.DecimalType() if kind.precision > DIGITS_MAX:
            raise InvalidConfig(f"--schema: {path} has {kind.precision} digits, and a decimal of a table {DIGITS_MAX}")


def iceberg_schema(columns: StructType) -> dict[str, Any]:
    """A schema of Iceberg with these columns; ids are those of a table that begins."""
    return {"schema-id": 0, **iceberg_type(columns, count(1))}


def iceberg_type(kind: DataType, ids: Iterator[int]) -> IcebergType:
    """The type in Iceberg's JSON. Raises InvalidConfig for one that Iceberg has not."""
    from pyspark.sql import types

    match kind:
        case types.StructType():
            # The ids of the fields come before those of what is in them, as Iceberg assigns them.
            numbered = [(next(ids), field) for field in kind.fields]
            return {
                "type": "struct",
                "fields": [
                    {"id": number, "name": field.name, "required": False, "type": iceberg_type(field.dataType, ids)}
                    for number, field in numbered
                ],
            }
        case types.ArrayType():
            return {
                "type": "list",
                "element-id": next(ids),
                "element": iceberg_type(kind.elementType, ids),
                "element-required": False,
            }
        case types.MapType():
            key, value = next(ids), next(ids)
            return {
                "type": "map",
                "key-id": key,
                "key": iceberg_type(kind.keyType, ids),
                "value-id": value,
                "value": iceberg_type(kind.valueType, ids),
                "value-required": False,
            }
        case types.DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
    name = kind.simpleString()
    if name not in TYPE_OF:
        raise InvalidConfig(f"Iceberg has no type for {name}: use one of {', '.join(TYPE_OF)}, DECIMAL, ARRAY, MAP")
    return TYPE_OF[name]


def schema_changes(table: IcebergType, wanted: IcebergType, table_name: str) -> list[SchemaChange]:
    """What a table needs to take rows of the wanted schema. table, wanted: structs of all columns.

    Raises InvalidConfig that names each difference which no rule allows.
    """
    found: list[SchemaChange] = []
    refused: list[str] = []
    before, now = fields_of(table), fields_of(wanted)
    for name in (*before, *(name for name in now if name not in before)):
        if name not in now:
            refused.append(f"it has a column {name!r}, which this job would leave empty")
        elif name not in before:
            refused.append(f"it has no column {name!r}")
        else:
            _compare(before[name], now[name], name, found, refused)
    if refused:
        raise InvalidConfig(
            f"table {table_name} cannot take rows of this schema: {'; '.join(refused)}. A schema may add fields, and "
            "widen int to long, float to double, and decimal(P, S) to more digits with the same S: correct --schema, "
            "or name another table with --to"
        )
    return found


def _compare(before: IcebergType, now: IcebergType, path: str, found: list[SchemaChange], refused: list[str]) -> None:
    kind = _kind(before)
    if kind != _kind(now):
        refused.append(f"{path} is {type_text(before)}, not {type_text(now)}")
    elif kind == "struct":
        earlier, later = fields_of(before), fields_of(now)
        for name, each in earlier.items():
            if name in later:
                _compare(each, later[name], f"{path}.{name}", found, refused)
            else:
                refused.append(f"the schema lacks its field {path}.{name}")
        found += [AddedField(path, name, each) for name, each in later.items() if name not in earlier]
    elif kind == "list":
        _compare(before["element"], now["element"], f"{path}.element", found, refused)
    elif kind == "map":
        if _normal(type_text(before["key"])) != _normal(type_text(now["key"])):  # Iceberg never changes keys
            refused.append(f"{path}.key is {type_text(before['key'])}, and does not become {type_text(now['key'])}")
        _compare(before["value"], now["value"], f"{path}.value", found, refused)
    elif _normal(before) != _normal(now):
        if is_widening(before, now):
            found.append(WidenedField(path, before, now))
        else:
            refused.append(f"{path} is {before}, and does not become {now}")


def is_widening(before: str, now: str) -> bool:
    """Whether each value of the one type is one of the other, by Iceberg's rules of promotion."""
    if (before, now) in WIDENINGS:
        return True
    earlier, later = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    # Another scale would have to rewrite the digits of each value that is stored.
    return bool(earlier and later and earlier[2] == later[2] and int(earlier[1]) < int(later[1]))


def fields_of(struct: IcebergType) -> dict[str, IcebergType]:
    """The types of a struct's fields by name."""
    return {field["name"]: field["type"] for field in struct["fields"]}


def type_text(kind: IcebergType) -> str:
    """The type for people."""
    match _kind(kind):
        case "struct":
            return f"struct<{', '.join(f'{name} {type_text(each)}' for name, each in fields_of(kind).items())}>"
        case "list":
            return f"list<{type_text(kind['element'])}>"
        case "map":
            return f"map<{type_text(kind['key'])}, {type_text(kind['value'])}>"
    return str(kind)


def _kind(kind: IcebergType) -> str:
    """Primitive types are of one kind: whether one becomes another is asked later."""
    return str(kind["type"]) if isinstance(kind, dict) else ""


def _normal(kind: str) -> str:
    """The text of a type without spaces: Iceberg writes `decimal(9, 2)`, some catalogs `decimal(9,2)`."""
    return kind.replace(" ", "")
