"""Committed offsets, and those of open transactions, changed only by records and markers.

The offset of a transaction counts from its marker on, in the order of the records: a record that was appended after it,
committed at once or by another transaction, prevails although its marker comes later (KIP-98, as Kafka compares the
offsets of the records).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final

from replication.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.types import ProducerId
from tidelog.values import dataclass

TopicIndexOfOffsets = dict[str, dict[str, int]]
Partition = tuple[str, int]
"""Topic name and partition."""

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(slots=True)
class _PendingOffset:
    """An offset of an open transaction."""

    value: OffsetCommitValue
    sequence: int
    """Its place in the order of the records."""
    superseded: bool = False
    """A later record has committed another offset: the marker must not set it back."""


class OffsetStore:
    """The offsets of all groups of the partition."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[Partition, OffsetCommitValue]] = {}
        self._by_topic: TopicIndexOfOffsets = {}
        self._pending: dict[ProducerId, dict[OffsetCommitKey, _PendingOffset]] = {}
        self._open: dict[str, dict[OffsetCommitKey, dict[ProducerId, _PendingOffset]]] = {}
        """The same pending offsets, by group."""
        self._sequence = 0
        self._count = 0

    # --- questions ---

    def __len__(self) -> int:
        """The number of committed offsets."""
        return self._count

    @property
    def group_count(self) -> int:
        """The number of groups with committed offsets."""
        return len(self._committed)

    def groups(self) -> Iterable[str]:
        """The ids of the groups that have offsets, also pending ones."""
        return dict.fromkeys((*self._committed, *self._open))

    def has(self, group_id: str) -> bool:
        """Whether the group has an offset, or a pending one."""
        return group_id in self._committed or group_id in self._open

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has an offset of the group."""
        return group_id in self._open

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        """The committed offset."""
        offsets = self._committed.get(group_id)
        return None if offsets is None else offsets.get((topic, partition))

    def of_group(self, group_id: str) -> Mapping[Partition, OffsetCommitValue]:
        """All committed offsets of a group."""
        return self._committed.get(group_id, {})

    def is_known(self, key: OffsetCommitKey) -> bool:
        """Whether the offset is committed, or an open transaction may commit it."""
        return self.get(key.group, key.topic, key.partition) is not None or self.is_pending(key)

    def is_pending(self, key: OffsetCommitKey) -> bool:
        """Whether an open transaction may change the offset."""
        return key in self._open.get(key.group, ())

    def pending_of_group(self, group_id: str) -> list[OffsetCommitKey]:
        """The keys of the group in open transactions."""
        return list(self._open.get(group_id, ()))

    def groups_with(self, topic: str) -> list[str]:
        """The groups with committed offsets of a topic."""
        return list(self._by_topic.get(topic, ()))

    def pending_with(self, topics: AbstractSet[str]) -> list[OffsetCommitKey]:
        """The keys of these topics in open transactions."""
        return [key for keys in self._open.values() for key in keys if key.topic in topics]

    def pending_values(self, key: OffsetCommitKey) -> list[OffsetCommitValue]:
        """What open transactions may commit for a key."""
        return [pending.value for pending in self._of_producers(key).values()]

    # --- changes ---

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer: ProducerId | None) -> None:
        """Take in a record. producer: it belongs to a transaction of this producer."""
        self._sequence += 1
        if value is None:
            self._remove(key)
        elif producer is not None:
            self._add_pending(key, value, producer)
        else:
            self._put(key, value, self._sequence)

    def end_transaction(self, producer: ProducerId, *, committed: bool) -> None:
        """Take in the marker that ends the transaction of a producer; no effect if none is open here."""
        for key, pending in self._pending.pop(producer, {}).items():
            self._drop_producer(key, producer)
            if committed and not pending.superseded:
                self._put(key, pending.value, pending.sequence)

    def _put(self, key: OffsetCommitKey, value: OffsetCommitValue, sequence: int) -> None:
        offsets = self._committed.get(key.group)
        if offsets is None:
            offsets = self._committed[key.group] = {}
        partition = key.topic, key.partition
        if partition not in offsets:
            self._count += 1
            groups = self._by_topic.setdefault(key.topic, {})
            groups[key.group] = groups.get(key.group, 0) + 1
        offsets[partition] = value
        for pending in self._of_producers(key).values():
            if pending.sequence < sequence:
                pending.superseded = True

    def _of_producers(self, key: OffsetCommitKey) -> Mapping[ProducerId, _PendingOffset]:
        """The pending offsets of a key."""
        return self._open.get(key.group, _NOTHING).get(key, _NOTHING)

    def _remove(self, key: OffsetCommitKey) -> None:
        offsets = self._committed.get(key.group)
        if offsets is not None and offsets.pop((key.topic, key.partition), None) is not None:
            self._count -= 1
            if not offsets:
                del self._committed[key.group]
            groups = self._by_topic[key.topic]
            groups[key.group] -= 1
            if not groups[key.group]:
                del groups[key.group]
                if not groups:
                    del self._by_topic[key.topic]
        for producer in list(self._of_producers(key)):
            self._drop_producer(key, producer)
            offsets_of_producer = self._pending[producer]
            del offsets_of_producer[key]
            if not offsets_of_producer:
                del self._pending[producer]

    def _add_pending(self, key: OffsetCommitKey, value: OffsetCommitValue, producer: ProducerId) -> None:
        pending = _PendingOffset(value, self._sequence)
        self._pending.setdefault(producer, {})[key] = pending
        self._open.setdefault(key.group, {}).setdefault(key, {})[producer] = pending

    def _drop_producer(self, key: OffsetCommitKey, producer: ProducerId) -> None:
        keys = self._open[key.group]
        del keys[key][producer]
        if not keys[key]:
            del keys[key]
            if not keys:
                del self._open[key.group]
