"""The messages that are generated from Kafka's schemas, and random instances of them."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from tidelog.protocol.kafka.message_codec import MessageCodec
from tidelog.protocol.kafka.schemas.generate import Field, generate, snake, versions_of
from tidelog.types import TransactionState

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = sorted((ROOT / "tidelog/protocol/kafka/schemas").glob("*.json"))
WIRE = [path for path in PRODUCT if re.search(r"(Request|Response|Header)$", path.stem)]
RECORDS = [path for path in PRODUCT if path not in WIRE]
OTHERS = sorted((ROOT / "tests/protocol/schemas").glob("*.json"))

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True, eq=False)
class Message:
    """A generated module with the schema that it comes from."""

    schema: dict[str, Any]
    module: ModuleType

    @property
    def name(self) -> str:
        name: str = self.schema["name"]
        return name

    @property
    def codec(self) -> MessageCodec[Any]:
        (codec,) = (value for value in vars(self.module).values() if isinstance(value, MessageCodec))
        return codec

    @property
    def versions(self) -> list[int]:
        return list(versions_of(self.schema["validVersions"]))

    @cache  # noqa: B019 - one for each message and version of a run
    def instances(self, version: int, *, tame: bool = False) -> st.SearchStrategy[Any]:
        """Instances whose fields exist in a version. tame: with small numbers only."""
        common = {each["name"]: each["fields"] for each in self.schema.get("commonStructs", [])}
        return self._structure(self.name, self.schema["fields"], common, version, tame)

    def _structure(
        self, name: str, fields: list[dict[str, Any]], common: dict[str, Any], version: int, tame: bool
    ) -> st.SearchStrategy[Any]:
        values = {}
        for schema in fields:
            field = Field.parse(schema)
            if version in field.versions:
                inner = schema.get("fields", common.get(field.kind, []))
                values[field.name] = self._field(field, inner, common, version, tame)
        return st.builds(getattr(self.module, name), **values)

    def _field(
        self, field: Field, inner: list[dict[str, Any]], common: dict[str, Any], version: int, tame: bool
    ) -> st.SearchStrategy[Any]:
        element = (
            self._structure(field.kind, inner, common, version, tame)
            if field.is_structure
            else st.sampled_from(TransactionState)
            if field.element_type == "TransactionState"
            else _primitives(field.kind, tame)
        )
        values = st.lists(element, max_size=2).map(tuple) if field.is_array else element
        return st.none() | values if version in field.nullable else values


def _primitives(kind: str, tame: bool) -> st.SearchStrategy[Any]:
    if bits := _BITS.get(kind):
        return st.integers(0, 40) if tame else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "uint16": st.integers(0, 2**16 - 1),
        "uint32": st.integers(0, 2**32 - 1),
        "float64": st.floats(allow_nan=False),
        "uuid": st.uuids(),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "bytes": st.binary(max_size=200),
        "records": st.binary(max_size=200),
    }
    return strategies[kind]


@cache
def message(path: Path) -> Message:
    """The checked-in module of a record; of a request or an answer, whose module has one direction, one with both."""
    schema = path.read_text(encoding="utf-8")
    if path not in RECORDS:
        return generated(schema)
    return Message(_parsed(schema), importlib.import_module(f"tidelog.protocol.kafka.messages.{snake(path.stem)}"))


def generated(schema: str) -> Message:
    """A module that is generated now, for both directions."""
    name, source = generate(schema, "rw")
    module = ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return Message(_parsed(schema), module)


def _parsed(schema: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", schema, flags=re.MULTILINE))
    return fields
