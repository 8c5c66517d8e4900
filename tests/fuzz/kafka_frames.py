"""Makes frames of Kafka's protocol at random, straight from Kafka's schemas: each API and version that is offered, each
field at its extremes, lengths that are wrong, tags that are none, bytes that are flipped, cut or doubled.

No codec of the product is used: it could not write most of this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from node.listeners.kafka import api_versions
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from node.listeners.kafka.kafka_sasl import HANDSHAKE_VERSIONS
from tests.fuzz.mutator import mutated
from tests.protocol.kafka_messages import ROOT
from tidelog.protocol.kafka.schemas.generate import Field, versions_of

API_VERSIONS: Final = "ApiVersions"

VERSIONS: Final = {API_VERSIONS: api_versions.VERSIONS, "SaslHandshake": HANDSHAKE_VERSIONS} | {
    each.request.message.__name__.removesuffix("Request"): each.versions for each in KAFKA_APIS
}
"""What is offered, by the name of the API."""

PLAUSIBLE: Final = 0.8
"""So often a field is given what it holds in the cluster, where that is known."""

ODD: Final = 0.005
"""So often a length, a number of tags, or the size of a tag is wrong."""

LENGTHS: Final = (-1, -2, 0, 1, 2**15 - 1, 2**16, 2**31 - 1, 2**31 - 2, -(2**31))
INTEGERS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
TEXTS: Final = (b"", b"orders", b"0", b"../..", b"a" * 300, b"\xc3\xa4\x00\n", b"x" * 32_767)
NO_TEXTS: Final = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc3")
"""What is not UTF-8."""
BLOBS: Final = (b"", b"\x00", b"\xff" * 16, bytes(range(200)), bytes(10_000))
SIZES: Final = ("num_partitions", "count")
"""Fields that make a topic grow: one with a thousand partitions is allowed, and has a thousand files."""

NULL: Final = object()
"""In place of a known value: null, whether the schema allows it or not."""

GIANT: Final = 20_000
"""Elements of an array that is larger than any client's."""

_WIDTH: Final = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16}


class Made(NamedTuple):
    """A frame, with its size in front."""

    api: str
    version: int
    correlation_id: int
    data: bytes
    is_whole: bool
    """False if the size in front is not that of the rest."""


@cache
def schema_of(name: str) -> dict[str, Any]:
    """The schema of a message, as the product has it."""
    text = (ROOT / "tidelog/protocol/kafka/schemas" / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


class FrameMaker:
    """Makes frames; what it knows of the cluster makes them plausible."""

    def __init__(self, rng: Random, known: Mapping[str, Sequence[Any]]) -> None:
        """known: what fields of these names hold in this cluster, as `name`, or `Produce.name` of one API; most of the
        time they are given that."""
        self._rng, self._known, self._api = rng, known, ""
        self._count = 0

    def make(self, api: str) -> Made:
        """One request."""
        rng = self._rng
        self._count, self._api = self._count + 1, api
        version = rng.choice(VERSIONS[api])
        body = self._request(api, version)
        chance = rng.random()
        if chance < 0.15:
            body = mutated(rng, [body, self._request(api, version)])
        elif chance < 0.2:
            body = body[: rng.randint(0, len(body))]
        elif chance < 0.22:
            body = rng.randbytes(rng.choice((10, 11, 100, 5_000)))
        size = len(body)
        if rng.random() < 0.02:
            size = rng.choice((*LENGTHS, size + 1, size + 1_000, max(0, size - 1), 1 << 20, (1 << 20) + 1))
        return Made(api, version, self._count, size.to_bytes(4, "big", signed=True) + body, size == len(body))

    def _request(self, api: str, version: int) -> bytes:
        schema = schema_of(f"{api}Request")
        common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
        is_flexible = version in versions_of(schema["flexibleVersions"])
        key: int = schema["apiKey"]
        sent = version
        if self._rng.random() < 0.01:
            key, sent = self._rng.choice(((-1, 0), (2**15 - 1, 0), (key, version + 1), (key, -1), (key, 2**15 - 1)))
        head = key.to_bytes(2, "big", signed=True) + sent.to_bytes(2, "big", signed=True)
        client = self._rng.choice((b"\xff\xff", b"\x00\x00", b"\x00\x04fuzz", self._text(b"y" * 1_000)))
        tags = self._tags([]) if is_flexible else b""
        body = self._structure(schema["fields"], common, version, is_flexible=is_flexible)
        return head + self._count.to_bytes(4, "big") + client + tags + body

    def _structure(
        self, fields: list[dict[str, Any]], common: Mapping[str, Any], version: int, *, is_flexible: bool
    ) -> bytes:
        out, tagged = bytearray(), list[tuple[int, bytes]]()
        for schema in fields:
            field = Field.parse(schema)
            if version not in field.versions:
                continue
            compact = is_flexible and field.own_flexible is None
            inner = schema.get("fields", common.get(field.kind, []))

            def element(field: Field = field, inner: Any = inner, compact: bool = compact) -> bytes:
                if field.is_structure:
                    return self._structure(inner, common, version, is_flexible=is_flexible)
                return self._value(field, compact=compact)

            value = self._field(field, element, version, compact=compact)
            if version in field.tagged:
                if self._rng.random() < 0.5:
                    tagged.append((field.tag, value))
            else:
                out += value
        return bytes(out) + (self._tags(tagged) if is_flexible else b"")

    def _field(self, field: Field, element: Callable[[], bytes], version: int, *, compact: bool) -> bytes:
        rng = self._rng
        is_null = version in field.nullable and rng.random() < 0.1
        if not field.is_array:
            if field.is_structure and version in field.nullable:
                return b"\xff" if is_null else b"\x01" + element()
            return element()
        if is_null:
            return self._length(-1, compact=compact)
        if not field.is_structure and field.kind in _WIDTH and rng.random() < 0.01:
            return self._length(GIANT, compact=compact) + rng.randbytes(_WIDTH[field.kind]) * GIANT
        count = rng.choice((0, 1, 1, 1, 2, 2, 30 if rng.random() < 0.2 else 3))
        return self._length(count, compact=compact) + b"".join(element() for _ in range(count))

    def _value(self, field: Field, *, compact: bool) -> bytes:
        """A value of a simple kind. The length of a string is its own."""
        rng, kind = self._rng, field.kind
        known = self._known.get(f"{self._api}.{field.name}") or self._known.get(field.name, ())
        plausible = rng.choice(known) if known and rng.random() < PLAUSIBLE else None
        if plausible is NULL:
            return self._text_length(-1) if kind == "string" and not compact else self._length(-1, compact=compact)
        if bits := INTEGERS.get(kind):
            number = plausible if isinstance(plausible, int) else self._integer(bits)
            if field.name in SIZES and 2 < number <= 1_000:
                number = 2
            return (number % (1 << bits)).to_bytes(bits // 8, "big")
        if kind == "bool":
            return rng.choice((b"\x00", b"\x01", b"\x02", b"\xff"))
        if kind == "uuid":
            return plausible.bytes if isinstance(plausible, UUID) else rng.choice((bytes(16), b"\xff" * 16))
        if kind == "float64":
            return rng.choice((bytes(8), b"\xff" * 8, b"\x7f\xf0" + bytes(6)))
        if kind == "string":
            text = plausible.encode() if isinstance(plausible, str) else rng.choice(TEXTS)
            if rng.random() < ODD:
                text = rng.choice(NO_TEXTS)
            return self._compact(text) if compact else self._text(text)
        blob: bytes = plausible if isinstance(plausible, bytes) else rng.choice(BLOBS)
        if kind == "records" and rng.random() < 0.2:
            blob = mutated(rng, [blob])
        return self._length(len(blob), compact=compact) + blob

    def _integer(self, bits: int) -> int:
        extremes = (0, 1, -1, -2, 2, 7, 99, 1_000, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 2)
        return self._rng.choice(extremes)

    def _text(self, text: bytes) -> bytes:
        return self._text_length(len(text)) + text

    def _text_length(self, length: int) -> bytes:
        return (self._size_of(length) % (1 << 16)).to_bytes(2, "big")

    def _compact(self, text: bytes) -> bytes:
        return self._length(len(text), compact=True) + text

    def _length(self, length: int, *, compact: bool) -> bytes:
        length = self._size_of(length)
        if not compact:
            return (length % (1 << 32)).to_bytes(4, "big")
        if self._rng.random() < ODD / 5:
            return b"\xff" * self._rng.randint(1, 12)
        return _varint((length + 1) % (1 << 32))

    def _size_of(self, length: int) -> int:
        if self._rng.random() >= ODD:
            return length
        return self._rng.choice((*LENGTHS, length + 1, length - 1))

    def _tags(self, tagged: list[tuple[int, bytes]]) -> bytes:
        """Tagged fields, sometimes with one that no schema has, twice the same, or in no order."""
        rng = self._rng
        if rng.random() < 0.03:
            tagged = [*tagged, (rng.choice((0, 1, 99, 2**31 - 1)), rng.choice(BLOBS))]
        if tagged and rng.random() < 0.02:
            tagged = [*tagged, tagged[0]]
        fields = (_varint(tag) + self._length(len(value) - 1, compact=True) + value for tag, value in tagged)
        return self._length(len(tagged) - 1, compact=True) + b"".join(fields)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
