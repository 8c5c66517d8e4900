"""Writes the codecs of Kafka's messages: a module for each schema, with classes and straight-line code.

    python -m tidelog.protocol.kafka.schemas.generate DIRECTORY        (make schemas)

A structure has one class for all versions, and per version a function that reads it and one that writes it; versions
with the same fields share them. Requests are only read, responses only written, records of coordinators both.
Schemas: Kafka's message format (clients/src/main/resources/common/message/README.md of Apache Kafka).
"""

from __future__ import annotations

import json
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from struct import calcsize
from textwrap import indent, wrap
from typing import Any, Final

from tidelog.protocol.kafka import message_codec

KAFKA_VERSION: Final = "4.1.0"

_LAYOUTS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Fields of a fixed size: the character of `struct`. Neighbours are read and written at once."""

_TYPES: Final = {"bool": "bool", "float64": "float", "uuid": "UUID", "string": "str", "bytes": "bytes"}
_IMPLICIT: Final = {"bool": "False", "float64": "0.0", "uuid": "NO_UUID", "string": '""', "bytes": 'b""'}
"""Kafka's defaults of fields whose schema has none."""

_NAMED: Final = {
    "offset": "Offset",
    "leader_epoch": "LeaderEpoch",
    "producer_id": "ProducerId",
    "previous_producer_id": "ProducerId",
    "next_producer_id": "ProducerId",
    **dict.fromkeys(("partition", "partitions", "partition_ids"), "PartitionIndex"),
    **dict.fromkeys(("timestamp", "commit_timestamp", "expire_timestamp", "current_state_timestamp"), "Millis"),
    **dict.fromkeys(("transaction_last_update_timestamp_ms", "transaction_start_timestamp_ms"), "Millis"),
}
"""Integers that have a name in tidelog.types, by the name of the field."""

_ENUMERATIONS: Final = {"transaction_status": "TransactionState"}
"""Integers whose numbers have names, by the name of the field."""

_SHARED: Final = {
    ("ConsumerGroupCurrentMemberAssignmentValue", "TopicPartitions"): "TopicPartitions",
    ("ConsumerGroupTargetAssignmentMemberValue", "TopicPartition"): "TopicPartitions",
    ("ConsumerGroupHeartbeatRequest", "TopicPartitions"): "TopicPartitions",
    ("ConsumerGroupHeartbeatResponse", "TopicPartitions"): "TopicPartitions",
}
"""Structures that are values of tidelog.types: requests have them too, so that an assignment is never converted."""

_CODEC_NAMES: Final = frozenset(
    re.findall(
        r"^(?:def |class |)(\w+)(?=[(:\[])", Path(message_codec.__file__).read_text(encoding="utf-8"), re.MULTILINE
    )
)
"""What generated code may import from the hand-written module."""

_LOCALS: Final = {"data", "at", "tag_count", "tag", "end"}
"""Names of generated readers that no field may have."""

_DIRECTIONS: Final = {"request": "r", "response": "w"}


def versions_of(text: str) -> range:
    """Parse "3+", "0-4", "2" or "none"."""
    if text == "none":
        return range(0)
    first, _, last = text.removesuffix("+").partition("-")
    return range(int(first), 2**15 if text.endswith("+") else int(last or first) + 1)


def snake(name: str) -> str:
    """ "TransactionalId" as `transactional_id`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"{words}_" if keyword.iskeyword(words) else words


@dataclass(frozen=True)
class Field:
    """A field of a structure. kind: of an array, that of its elements."""

    name: str
    kind: str
    is_array: bool
    versions: range
    nullable: range
    tagged: range
    tag: int
    default: Any
    is_ignorable: bool
    own_flexible: str | None
    about: str

    @classmethod
    def parse(cls, field: dict[str, Any]) -> Field:
        kind = field["type"]
        tagged = versions_of(field.get("taggedVersions", "none"))
        default = field.get("default", ...)
        return cls(
            name=snake(field["name"]),
            kind=kind.removeprefix("[]"),
            is_array=kind.startswith("[]"),
            versions=versions_of(field["versions"]) if "versions" in field else tagged,
            nullable=versions_of(field.get("nullableVersions", "none")),
            tagged=tagged,
            tag=field.get("tag", -1),
            default=None if default == "null" else default,
            is_ignorable=field.get("ignorable", False),
            own_flexible=field.get("flexibleVersions"),
            about=field.get("about", ""),
        )

    @property
    def layout(self) -> str | None:
        """The layout of a field of a fixed size."""
        return None if self.is_array else _LAYOUTS.get(self.kind)

    @property
    def is_structure(self) -> bool:
        return self.kind not in (*_LAYOUTS, "string", "bytes", "records")

    @property
    def element_type(self) -> str:
        if self.is_structure:
            return self.kind
        if self.kind == "records":
            return "Data"
        return _TYPES.get(self.kind) or _ENUMERATIONS.get(self.name) or _NAMED.get(self.name, "int")

    @property
    def type(self) -> str:
        plain = f"tuple[{self.element_type}, ...]" if self.is_array else self.element_type
        return f"{plain} | None" if self.nullable or self.kind == "records" else plain


class Module:
    """The module of one message."""

    def __init__(self, schema: dict[str, Any], directions: str) -> None:
        self._message: str = schema["name"]
        self._api_key: int = schema.get("apiKey", -1)
        self._is_of_api = schema["type"] in _DIRECTIONS
        self._origin = schema.get("origin", f"Apache Kafka {KAFKA_VERSION}")
        self._directions = directions
        self._versions = versions_of(schema["validVersions"])
        self._flexible = versions_of(schema["flexibleVersions"])
        self._structures: dict[str, list[Field]] = {}
        self._exists: dict[str, range] = {}
        self._classes: list[str] = []
        self._functions: dict[tuple[str, str], str] = {}
        self._texts: list[str] = []
        self._layouts: set[str] = set()
        for shared in schema.get("commonStructs", []):
            self._collect(shared["name"], versions_of(shared["versions"]), shared["fields"])
        self._collect(self._message, self._versions, schema["fields"])

    def source(self) -> str:
        self._add_class(self._message)
        rows = []
        for way, table in (("r", "readers"), ("w", "writers")):
            versions = self._versions if way in self._directions else ()
            entries = [f"{version}: {self._function(way, self._message, version)}" for version in versions]
            rows.append(f"    {table}={{{', '.join(entries)}}},")
        name = snake(self._message).upper()
        if self._is_of_api and self._flexible:
            rows.append(f"    flexible_from={self._flexible.start},")
        codec = "\n".join([f"{name}: Final = MessageCodec(", f"    {self._message}, {self._api_key},", *rows, ")\n"])
        layouts = [
            f'_{way}_{_layout_name(layout)} = Struct(">{layout}").{method}'
            for layout in sorted(self._layouts)
            for way, method in (("r", "unpack_from"), ("w", "pack"))
            if way in self._directions
        ]
        body = "\n\n\n".join([*self._classes, *self._texts, codec])
        title = (
            f'"""{self._message}, versions {self._versions[0]} to {self._versions[-1]}. Generated from '
            f'{self._message}.json of {self._origin} by `make schemas`; never edited."""'
        )
        head = [title, "", "from __future__ import annotations", "", *self._imports("\n".join([*layouts, body]))]
        return "\n".join([*head, "", *layouts, *([""] if layouts else []), "", body])

    def _collect(self, name: str, versions: range, fields: list[dict[str, Any]]) -> None:
        parsed = [Field.parse(field) for field in fields]
        for field, schema in zip(parsed, fields, strict=True):
            if "fields" in schema:
                self._collect(field.kind, field.versions, schema["fields"])
        assert not _LOCALS & {field.name for field in parsed}, f"{name} has a field named as a local of its reader"
        self._structures[name] = parsed
        self._exists[name] = versions

    # --- classes ------------------------------------------------------------------------------------------------

    def _add_class(self, name: str) -> None:
        for field in self._structures[name]:
            if field.is_structure:
                self._add_class(field.kind)
                if not field.is_array and field.default is not None:
                    self._add(self._default_structure(field))
        self._add(self._class(name))

    def _add(self, text: str) -> None:
        if text and text not in self._classes:
            self._classes.append(text)

    def _default_structure(self, field: Field) -> str:
        """The constant for the default of a structure: one object, since writers compare with it."""
        required = [each for each in self._structures[field.kind] if not self._is_optional(field.kind, each)]
        return f"{self._default(field)} = {field.kind}({', '.join(map(self._default, required))})"

    def _class(self, name: str) -> str:
        if shared := _SHARED.get((self._message, name)):
            return f"{name} = {shared}" if shared != name else ""
        fields = sorted(self._structures[name], key=lambda field: self._is_optional(name, field))
        about = "The message." if name == self._message else f"A structure of {self._message}."
        slots = ", ".join(f'"{field.name}"' for field in fields) + ("," if len(fields) == 1 else "")
        parameters, assignments = [], []
        for field in fields:
            default = f" = {self._default(field)}" if self._is_optional(name, field) else ""
            parameters.append(f"        {field.name}: {field.type}{default},")
            assignments += [f"        # {line}" for line in wrap(field.about, 108)]
            assignments.append(f"        self.{field.name}: Final = {field.name}")
        head = [f"class {name}(Structure):", f'    """{about}"""', ""]
        names = [f"    __slots__ = ({slots})", f"    __match_args__ = ({slots})", ""]
        return "\n".join([*head, *names, "    def __init__(self,", *parameters, "    ) -> None:", *assignments])

    def _is_optional(self, name: str, field: Field) -> bool:
        """True if a version of the structure lacks the field: it then has its default."""
        return bool(field.tagged) or any(v in self._exists[name] and v not in field.versions for v in self._versions)

    def _default(self, field: Field) -> str:
        if field.default is None or (field.kind == "records" and field.default is ...):
            return "None"
        if field.is_array:
            return "()"
        if field.is_structure:
            return f"_{snake(field.kind).upper()}"
        if field.kind in _IMPLICIT:
            if field.default is ... or field.kind in ("uuid", "bytes"):
                return _IMPLICIT[field.kind]
            return repr({"true": True, "false": False}.get(field.default, field.default))
        value = str(0 if field.default is ... else int(str(field.default), 0))
        return f"{field.element_type}({value})" if field.element_type != "int" else value

    # --- functions ----------------------------------------------------------------------------------------------

    def _function(self, way: str, name: str, version: int) -> str:
        """The name of the function for a structure in a version, which an earlier version may share."""
        if way == "r":
            body = self._reader(name, version)
            form = f"def {{}}(data: Data, at: int) -> tuple[{name}, int]:\n{{}}"
        else:
            body = self._writer(name, version)
            form = f"def {{}}(out: Output, value: {name}) -> None:\n{{}}"
        text = indent("\n".join(body), "    ")
        function = self._functions.get((form, text))
        if function is None:
            function = f"_{'read' if way == 'r' else 'write'}_{snake(name)}_{version}"
            self._functions[form, text] = function
            self._texts.append(form.format(function, text))
        return function

    def _fields(self, name: str, version: int) -> tuple[list[Field], list[Field]]:
        """The fields of a structure in a version, and the tagged ones."""
        present = [field for field in self._structures[name] if version in field.versions]
        tagged = sorted((field for field in present if version in field.tagged), key=lambda field: field.tag)
        return [field for field in present if version not in field.tagged], tagged

    def _is_flexible(self, field: Field, version: int) -> bool:
        own = field.own_flexible
        return version in (self._flexible if own is None else versions_of(own))

    def _reader(self, name: str, version: int) -> list[str]:
        plain, tagged = self._fields(name, version)
        lines: list[str] = []
        for run in _runs(plain):
            lines += self._read(run, version)
        if tagged:
            lines += [f"{field.name}: {field.type} = {self._default(field)}" for field in tagged]
            lines += [
                "tag_count, at = read_tag_count(data, at)",
                "for _ in range(tag_count):",
                "    tag, at, end = read_tag(data, at)",
            ]
            for number, field in enumerate(tagged):
                lines += [f"    {'elif' if number else 'if'} tag == {field.tag}:"]
                lines += [f"        {line}" for line in self._read([field], version)]
            lines += ["    else:", "        at = end", "    check_tag(tag, at, end)"]
        elif version in self._flexible:
            lines.append("at = skip_tags(data, at)")
        arguments = ", ".join(f"{field.name}={field.name}" for field in (*plain, *tagged))
        return [*lines, f"return {name}({arguments}), at"]

    def _read(self, run: list[Field], version: int) -> list[str]:
        """The lines that read a field, or neighbours of a fixed size."""
        field = run[0]
        if field.layout is not None:
            layout = "".join(f"{each.layout}" for each in run)
            self._layouts.add(layout)
            names = ", ".join(each.name for each in run) + ("," if len(run) == 1 else "")
            names = f"({names})" if len(run) == 1 else names
            made = [(each.name, "uuid_of" if each.kind == "uuid" else _ENUMERATIONS.get(each.name)) for each in run]
            objects = [f"{name} = {function}({name})" for name, function in made if function is not None]
            return [f"{names} = _r_{_layout_name(layout)}(data, at)", f"at += {calcsize(f'>{layout}')}", *objects]
        return [f"{field.name}, at = {self._call('r', field, version, 'data, at')}"]

    def _writer(self, name: str, version: int) -> list[str]:
        plain, tagged = self._fields(name, version)
        lines = [
            f'if {self._differs(field)}:\n    raise inexpressible("{name}.{field.name}")'
            for field in self._structures[name]
            if version not in field.versions and not field.is_ignorable
        ]
        for run in _runs(plain):
            lines += self._write(name, run, version, "out")
        if tagged:
            lines.append("tags: list[tuple[int, Output]] = []")
            for field in tagged:
                assert field.kind != "records", "records in a tagged field would be copied"
                lines.append(f"if {self._differs(field)}:")
                lines += ["    tagged = Output()"]
                lines += [f"    {line}" for line in self._write(name, [field], version, "tagged")]
                lines += [f"    tags.append(({field.tag}, tagged))"]
            lines.append("write_tags(out, tags)")
        elif version in self._flexible:
            lines.append("out.append(0)")
        return lines or ["pass"]

    def _differs(self, field: Field) -> str:
        """Whether a field of a value has another value than its default."""
        default = self._default(field)
        differs = f"value.{field.name} {'is not' if default == 'None' else '!='} {default}"
        if field.is_structure and default not in ("None", "()"):  # to compare structures takes calls
            differs = f"value.{field.name} is not {default} and {differs}"
        return differs

    def _write(self, name: str, run: list[Field], version: int, out: str) -> list[str]:
        field = run[0]
        if field.layout is not None:
            layout = "".join(f"{each.layout}" for each in run)
            self._layouts.add(layout)
            values = ", ".join(f"value.{each.name}{'.bytes' if each.kind == 'uuid' else ''}" for each in run)
            return [f"{out} += _w_{_layout_name(layout)}({values})"]
        value = f"value.{field.name}"
        if field.nullable and version not in field.nullable and field.kind != "records":
            value = f'not_null({value}, "{name}.{field.name}")'
        return [self._call("w", field, version, f"{out}, {value}")]

    def _call(self, way: str, field: Field, version: int, arguments: str) -> str:
        """The call that reads or writes a field of a variable size."""
        verb = "read" if way == "r" else "write"
        compact = "compact_" if self._is_flexible(field, version) else ""
        nullable = "nullable_" if version in field.nullable and way == "r" else ""
        length = f"{verb}_{compact}length"
        if field.is_array:
            layout = _LAYOUTS.get(field.kind)
            if layout is not None and field.kind != "uuid":
                return f'{verb}_{nullable}numbers({arguments}, {length}, "{layout}")'
            return f"{verb}_{nullable}array({arguments}, {length}, {self._element(way, field, version, compact)})"
        if field.kind == "string":
            return f"{verb}_{nullable}{compact}string({arguments})"
        if field.kind in ("bytes", "records"):
            nullable = "" if field.kind == "records" else nullable
            return f"{verb}_{nullable}{field.kind}({arguments}, {length})"
        function = self._function(way, field.kind, version)
        if version in field.nullable:
            return f"{verb}_nullable_structure({arguments}, {function})"
        return f"{function}({arguments})"

    def _element(self, way: str, field: Field, version: int, compact: str) -> str:
        if field.is_structure:
            return self._function(way, field.kind, version)
        assert field.kind in ("string", "uuid"), f"arrays of {field.kind} are not supported"
        return f"{'read' if way == 'r' else 'write'}_{'' if field.kind == 'uuid' else compact}{field.kind}"

    # --- imports ------------------------------------------------------------------------------------------------

    def _imports(self, text: str) -> list[str]:
        """The import statements for the names that the text uses."""
        words = set(re.findall(r"\w+", text))
        codec = sorted(words & _CODEC_NAMES)
        shared = {name for (message, _), name in _SHARED.items() if message == self._message}
        named = {*_NAMED.values(), *_ENUMERATIONS.values()} - set(
            self._structures
        )  # a structure may have the same name
        types = sorted(words & named | shared)
        lines = [
            *(["from struct import Struct"] if self._layouts else []),
            "from typing import Final",
            *(["from uuid import UUID"] if "UUID" in words else []),
            "",
        ]
        lines += ["from tidelog.protocol.kafka.message_codec import (", *(f"    {name}," for name in codec), ")"]
        return [*lines, f"from tidelog.types import {', '.join(types)}"] if types else lines


def _layout_name(layout: str) -> str:
    return layout.replace("16s", "u").replace("?", "t")


def _runs(fields: list[Field]) -> list[list[Field]]:
    """Neighbours of a fixed size together, every other field alone."""
    runs: list[list[Field]] = []
    for field in fields:
        if runs and field.layout is not None and runs[-1][0].layout is not None:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def generate(schema: str, directions: str | None = None) -> tuple[str, str]:
    """Return the name of the module, and its source.

    directions: "r" to read the message, "w" to write it, "rw"; without it, what its type needs.
    """
    parsed = json.loads(re.sub(r"^\s*//.*$", "", schema, flags=re.MULTILINE))
    return snake(parsed["name"]), Module(parsed, directions or _DIRECTIONS.get(parsed["type"], "rw")).source()


def main() -> None:
    directory = Path(sys.argv[1])
    (directory / "__init__.py").write_text('"""Generated from Kafka\'s schemas by `make schemas`; never edited."""\n')
    for schema in sorted(Path(__file__).parent.glob("*.json")):
        name, source = generate(schema.read_text(encoding="utf-8"))
        (directory / f"{name}.py").write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
