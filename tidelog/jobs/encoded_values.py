"""Values of a table in Avro and in Protobuf: their schemas as Spark's types, and their fields. Pure.

A value fits if the schema reads it to its last byte. Both encodings name no fields: bytes that another schema wrote may
fit by chance, so a value that has the id of a schema in front is compared with the id that is expected
(framed_values.py).
Sources: Avro's specification 1.12; Protocol Buffers' encoding.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.jobs.fitted_values import FittedValue, ValueReader

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class AvroReader:
    """Reads records of one Avro schema, binary encoding."""

    def __init__(self, schema: str) -> None:
        """schema: Avro's JSON. Raises InvalidConfig for one that is no record, or that a table cannot have;
        UnsupportedVersion if fastavro is missing."""
        try:
            import fastavro
        except ImportError as error:
            raise UnsupportedVersion(
                "--value-format avro needs fastavro: pip install 'tidelog[schema-registry]', on executors as well"
            ) from error
        try:
            named: dict[str, Any] = {}
            self._schema: Any = fastavro.parse_schema(_known_logical(json.loads(schema)), named_schemas=named)
            found = avro_struct(self._schema, named)
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            raise InvalidConfig(f"--schema is no Avro schema: {error}; give the JSON of a record") from error
        self.schema: StructType = found
        self._read = fastavro.schemaless_reader

    def fit(self, value: bytes) -> FittedValue:
        """The fields of a record."""
        stream = BytesIO(value)
        try:
            found: Any = self._read(stream, self._schema, None)
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever its bytes lead to
            return FittedValue(None, f"it is no Avro record of the schema: {str(error) or type(error).__name__}")
        if stream.tell() != len(value):
            return FittedValue(None, f"it is no Avro record of the schema, which ends at byte {stream.tell()}")
        return FittedValue(found, None)


_AVRO: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
"""Logical types that a table has; of all others the type beneath is stored."""
_NULL: Final = ("null", {"type": "null"})


def avro_struct(schema: Any, named: Mapping[str, Any]) -> StructType:
    """A record as Spark's type. schema: with the full name of each type, as fastavro has parsed it, in each definition
    and wherever it is used. named: the definitions by these names."""
    found = avro_type(schema, named, ())
    from pyspark.sql.types import StructType

    if not isinstance(found, StructType) or not found.fields:
        raise InvalidConfig("--schema: Avro's schema of the values must be a record with fields")
    return found


def avro_type(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> DataType:
    """An Avro type as Spark's. inside: the records around it. Raises InvalidConfig for a union of several types, and
    for a record in itself."""
    if isinstance(schema, list):
        others = [each for each in schema if each not in _NULL]
        if len(others) != 1:
            raise InvalidConfig(f"--schema: a table has no union of types: {json.dumps(schema)}; use one with null")
        return avro_type(others[0], named, inside)
    if schema in _NULL:
        raise InvalidConfig(
            "--schema: a field that is always null has no type in a table: remove it, or give it a type"
        )
    if isinstance(schema, str):
        if schema in inside:
            raise InvalidConfig(f"--schema: record {schema} contains itself, which a table cannot")
        return _spark(_AVRO[schema]) if schema in _AVRO else avro_type(named[schema], named, inside)
    return _complex(schema, named, inside)


def _complex(schema: dict[str, Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> DataType:
    from pyspark.sql import types

    match kind := schema["type"]:
        case dict() | list():
            return avro_type(kind, named, inside)
        case "record":
            within = (*inside, schema["name"])
            return types.StructType(
                [types.StructField(each["name"], avro_type(each["type"], named, within)) for each in schema["fields"]]
            )
        case "enum":
            return types.StringType()
        case "array":
            return types.ArrayType(avro_type(schema["items"], named, inside))
        case "map":
            return types.MapType(types.StringType(), avro_type(schema["values"], named, inside))
        case "bytes" | "fixed" if schema.get("logicalType") == "decimal":
            return types.DecimalType(schema["precision"], schema.get("scale", 0))
        case "fixed":
            return types.BinaryType()
    return _spark(_LOGICAL.get((kind, schema.get("logicalType", "")), _AVRO[kind]))


def _known_logical(schema: Any) -> Any:
    """The schema without logical types that a table has not: fastavro would make objects of them."""
    if isinstance(schema, list):
        return [_known_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    keeps = logical == "decimal" or (str(schema.get("type")), str(logical)) in _LOGICAL
    return {
        key: _known_logical(each) if key in ("type", "items", "values", "fields") else each
        for key, each in schema.items()
        if keeps or key != "logicalType"
    }


class ProtobufReader:
    """Reads messages of one type."""

    def __init__(self, schema: str) -> None:
        """schema: as `protobuf_schema` makes it. Raises InvalidConfig for a type that a table cannot have."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError

        given = json.loads(schema)
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(given["descriptors"]))
            pool = descriptor_pool.DescriptorPool()
            for file in files.file:
                pool.Add(file)
            descriptor = pool.FindMessageTypeByName(given["message"])
        except (DecodeError, KeyError, TypeError, ValueError) as error:
            raise InvalidConfig(
                f"--schema has no message {given['message']!r} ({error}): give a descriptor set (protoc "
                "--include_imports --descriptor_set_out=FILE) and the full name with --message"
            ) from error
        self.schema: StructType = _message_type(descriptor, ())
        self.descriptor: Any = descriptor
        """Of the message, as protobuf has it."""
        self._class: Any = message_factory.GetMessageClass(descriptor)
        self._fault: Any = DecodeError

    def fit(self, value: bytes) -> FittedValue:
        """The fields of a message. Fields of numbers that the schema does not name are kept as bytes."""
        message = self._class()
        try:
            message.ParseFromString(value)
            fields = _fields_of(message)
        except (self._fault, ValueError) as error:
            return FittedValue(None, f"it is no message of the schema: {error}")
        size = message.ByteSize()
        message.DiscardUnknownFields()
        says_all = message.ByteSize() == size and not _has_extensions(message)
        return FittedValue(fields, None if says_all else "the schema does not name all its fields")


def protobuf_schema(descriptors: bytes, message: str) -> str:
    """A descriptor set and the full name of a message as one text."""
    return json.dumps({"descriptors": base64.b64encode(descriptors).decode(), "message": message})


_PROTOBUF: Final = {
    "int32": "int",
    "sint32": "int",
    "sfixed32": "int",
    "uint32": "bigint",
    "fixed32": "bigint",
    "int64": "bigint",
    "sint64": "bigint",
    "sfixed64": "bigint",
    "uint64": "decimal(20,0)",
    "fixed64": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
}


def _message_type(descriptor: Any, inside: tuple[str, ...]) -> Any:
    from pyspark.sql import types

    if descriptor.full_name in inside:
        raise InvalidConfig(f"--schema: message {descriptor.full_name} contains itself, which a table cannot")
    within = (*inside, descriptor.full_name)
    return types.StructType([types.StructField(each.name, _field_type(each, within)) for each in descriptor.fields])


def _field_type(field: Any, inside: tuple[str, ...]) -> Any:
    from pyspark.sql import types

    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return types.MapType(_single_type(key, inside), _single_type(value, inside))
    single = _single_type(field, inside)
    return types.ArrayType(single) if field.is_repeated else single


def _single_type(field: Any, inside: tuple[str, ...]) -> Any:
    if field.message_type is not None:
        return _message_type(field.message_type, inside)
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return _spark(_PROTOBUF[FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()])


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _fields_of(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            key, each = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            found[field.name] = [(_single(key, name), _single(each, value[name])) for name in sorted(value)]
        elif field.is_repeated:
            found[field.name] = [_single(field, each) for each in value]
        else:
            found[field.name] = _single(field, value)
    return found


def _has_extensions(message: Any) -> bool:
    """Whether it has fields, at any depth, that another message of the descriptor set adds to it (proto2): they are no
    unknown fields, and have no column."""
    for field, value in message.ListFields():
        if field.is_extension:
            return True
        if field.message_type is None:
            continue
        inner: Iterable[Any] = (value,)
        if _is_map(field):
            inner = value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
        elif field.is_repeated:
            inner = value
        if any(map(_has_extensions, inner)):
            return True
    return False


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _fields_of(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        if named is None:
            raise ValueError(f"{field.name} has {value}, which its enum does not name")
        return named.name
    return value


def _spark(name: str) -> DataType:
    """A Spark type by its simple name."""
    from pyspark.sql import types

    if name == "decimal(20,0)":
        return types.DecimalType(20, 0)
    kinds: Collection[DataType] = (
        types.BooleanType(),
        types.IntegerType(),
        types.LongType(),
        types.FloatType(),
        types.DoubleType(),
        types.BinaryType(),
        types.StringType(),
        types.DateType(),
        types.TimestampType(),
        types.TimestampNTZType(),
    )
    return next(each for each in kinds if each.simpleString() == name)


ENCODED: Final[Mapping[str, Callable[[str], ValueReader]]] = {"avro": AvroReader, "protobuf": ProtobufReader}
