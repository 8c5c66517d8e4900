"""Durability receipts: statements of a partition's leader about a record that it has acknowledged.

A receipt outlives the producer as one line of JSON (`to_json`), which `tidelog job audit --receipts` checks against the
log. It is about stored bytes, not about an outcome: the record of an aborted transaction has a receipt too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from tidelog.errors import InvalidRequest
from tidelog.types import (
    INT32_MAX,
    INT64_MAX,
    BatchReceipt,
    Durability,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

VERSION: Final = 1
"""Version of the JSON form, in its field `receipt`."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Receipt of one record."""

    topic: str
    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    leader_epoch: LeaderEpoch
    """The leader epoch in which the batch was appended."""
    base_offset: Offset
    """First offset of the batch that contains the record, as stored."""
    last_offset: Offset
    checksum: int
    """The CRC-32C in the header of that batch. It covers neither the offsets nor the leader epoch."""
    replicas: tuple[NodeId, ...]
    """In-sync replicas that had the batch when it was acknowledged, according to the leader."""
    durable_replicas: tuple[NodeId, ...]
    """Those that had reported it as durable; with acks="all" at least `min.insync.replicas` of them."""
    durability: Durability
    """The topic's setting, which defines what durable means."""

    def to_json(self) -> str:
        """Return the receipt as one line of JSON, without a line break."""
        own = {name: getattr(self, name) for name in self.__slots__}  # `asdict` takes five times as long: it copies
        texts = {
            "topic_id": str(self.topic_id),
            "checksum": f"{self.checksum:08x}",
            "durability": self.durability.value,
        }
        return json.dumps({"receipt": VERSION, **own, **texts}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse one line of JSON. Unknown fields are ignored. Raises InvalidRequest with the reason."""
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"a receipt is one line of JSON; this is none ({error}): {line[:80]!r}") from error
        if not isinstance(fields, dict) or fields.get("receipt") != VERSION:
            raise InvalidRequest(f'a receipt is a JSON object with "receipt": {VERSION}, not {line[:80]!r}')
        base, offset, last = (_number(fields, name, INT64_MAX) for name in ("base_offset", "offset", "last_offset"))
        if not base <= offset <= last:
            raise InvalidRequest(f"a receipt names offset {offset} outside its batch {base}..{last}: {line[:80]!r}")
        return cls(
            topic=_text(fields, "topic"),
            topic_id=TopicId(_parsed(fields, "topic_id", UUID)),
            partition=PartitionIndex(_number(fields, "partition")),
            offset=Offset(offset),
            leader_epoch=LeaderEpoch(_number(fields, "leader_epoch")),
            base_offset=Offset(base),
            last_offset=Offset(last),
            checksum=_parsed(fields, "checksum", _checksum),
            replicas=_nodes(fields, "replicas"),
            durable_replicas=_nodes(fields, "durable_replicas"),
            durability=_parsed(fields, "durability", Durability),
        )


class StoredBatch(NamedTuple):
    """The part of receipts that all records of a batch share."""

    stated: BatchReceipt
    base_offset: Offset
    leader_epoch: LeaderEpoch
    """The leader epoch in which the batch was appended."""

    def receipt(self, topic_partition: TopicPartition, offset: Offset) -> Receipt:
        """The receipt of the record at `offset`."""
        stated = self.stated
        return Receipt(
            topic_partition.topic,
            stated.topic_id,
            topic_partition.partition,
            offset,
            self.leader_epoch,
            self.base_offset,
            stated.last_offset,
            stated.checksum,
            stated.replicas,
            stated.durable_replicas,
            stated.durability,
        )


def _number(fields: Mapping[str, Any], name: str, most: int = INT32_MAX) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidRequest(f"a receipt needs {name!r} from 0 to {most}, not {value!r}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"a receipt needs {name!r} as text, not {value!r}")
    return value


def _parsed(fields: Mapping[str, Any], name: str, parse: Any) -> Any:
    value = _text(fields, name)
    try:
        return parse(value)
    except ValueError as error:
        raise InvalidRequest(f"a receipt has an invalid {name!r}: {value[:80]!r}") from error


def _checksum(value: str) -> int:
    if len(value) != 8 or not set(value) <= set("0123456789abcdef"):
        raise ValueError(value)
    return int(value, 16)


def _nodes(fields: Mapping[str, Any], name: str) -> tuple[NodeId, ...]:
    value = fields.get(name)
    if not isinstance(value, list) or not all(type(node) is int and node >= 0 for node in value):
        raise InvalidRequest(f"a receipt needs {name!r} as a list of node ids, not {value!r}")
    return tuple(NodeId(node) for node in value)
