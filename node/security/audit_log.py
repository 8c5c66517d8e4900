"""The audit log: denied requests, failed authentications and administrative changes, each as one line of JSON.

Invariants:
  1. A line is one JSON object in ASCII: control characters of names are escaped, so no name can forge a line.
  2. A line has at most `LINE_CHARACTERS_MAX` characters: names are cut, and of many parts of a request the first are
     shown. Fields that hold secrets (declared with `repr=False`) are left out.
  3. A flood of denials makes at most `2 * EVENTS_MAX + 1` lines in `WINDOW_MS`, and so does one of failed
     authentications: the first event of each kind, and afterwards how many more there were. Administrative changes are
     never left out.
  4. No value of a request makes writing an event fail.

Not here: where lines go (audit_file.py), what is denied (acl_authorizer.py).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import Any, Final, TypeAlias

from node.api.admin_requests import ChangedPart, ChangedPartitions, ChangedParts, ChangedTopics
from node.api.api import Api
from node.api.caller import Caller
from node.api.controller_requests import Envelope, EnvelopeAnswer
from node.api.deletions import DeletedRecords, DeleteRecordsAnswer
from node.runtime.request_meter import name_of
from node.security.authorizer import AuditTrail
from replication.controller.events import ChangedTopic
from replication.coordination.group_requests import (
    CommittedPartition,
    CommittedPartitions,
    DeletedGroup,
    DeleteGroupsAnswer,
)
from tidelog.clock import Clock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import TidelogError
from tidelog.security.acls import CLUSTER_NAME, AclOperation, ResourceType

WINDOW_MS: Final = 10_000
EVENTS_MAX: Final = 100
LINE_CHARACTERS_MAX: Final = 8_192
TEXT_CHARACTERS_MAX: Final = 256
ESCAPED_CHARACTERS_MAX: Final = 768
"""Of a text in its escaped form: a line has up to eight."""

ITEMS_MAX: Final = (20, 5, 1)
"""How many parts of a request a line shows: the first number with which it is short enough."""


class AuditLog(AuditTrail):
    """Writes the events of one node."""

    def __init__(self, write: Callable[[str], None], *, clock: Clock, node_id: int) -> None:
        """write: takes a line without its end; it must not wait."""
        self._write = write
        self._clock, self._node_id = clock, node_id
        self.counts = dict.fromkeys(("denied", "authentication_failed", "change"), 0)
        """Events since the start, also those that were left out."""
        self._denials = _EventLimit()
        self._failures = _EventLimit()
        self._window_ends = clock.monotonic_ms() + WINDOW_MS

    async def run(self) -> None:
        """Report at the end of each window how many events were left out, until cancelled."""
        while True:
            await self._clock.sleep_ms(WINDOW_MS)
            self._begin_window()

    def not_a_node(self, caller: Caller, request: str) -> None:
        """As AuditTrail's."""
        reason = "the request is for nodes only, and the caller is none"
        self.denied(caller, request, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, reason)

    def denied(
        self,
        caller: Caller,
        request: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        reason: str,
    ) -> None:
        """A request, or one topic of it, was refused."""
        denial = {
            "principal": _short(caller.principal),
            "operation": operation.name,
            "resource_type": resource_type.name,
            "resource": _short(name),
        }
        if self._admits(self._denials, "denied", denial):
            self._event("denied", {**_origin(caller), **denial, "request": request, "reason": _short(reason)})

    def authentication_failed(
        self, *, listener: str, address: str, mechanism: str, reason: str, claimed_user: str = ""
    ) -> None:
        """As AuditTrail's. The claimed user belongs to no kind of event: a guesser of names has one kind."""
        host = address.rpartition(":")[0]
        failure = {"host": _short(host), "listener": _short(listener), "mechanism": _short(mechanism)}
        if self._admits(self._failures, "authentication_failed", failure):
            who = {"claimed_user": _short(claimed_user)} if claimed_user else {}
            self._event(
                "authentication_failed", {**failure, "address": _short(address), **who, "reason": _short(reason)}
            )

    def changed(self, caller: Caller, api: Api[Any, Any], asked: Any, outcome: Any) -> None:
        """As AuditTrail's."""
        self.counts["change"] += 1
        request, forwarded = api.name, {}
        if isinstance(asked, Envelope):
            request = f"Controller.{asked.api.operation}"
            forwarded = {"forwarded_for": _short(asked.principal)} if asked.principal else {}
            asked = asked.asked
        what = {"principal": _short(caller.principal), **forwarded, **_origin(caller), "request": request}
        result = _outcome(outcome.answered if isinstance(outcome, EnvelopeAnswer) else outcome)
        for items in ITEMS_MAX:
            line = self._line("change", {**what, "outcome": result, "asked": _plain(asked, items)})
            if len(line) <= LINE_CHARACTERS_MAX:
                break
        else:
            line = self._line("change", {**what, "outcome": result, "asked": "too long for a line"})
        self._write(line)

    def close(self) -> None:
        """Report the number of events that were left out so far."""
        self._begin_window()

    def _admits(self, limit: _EventLimit, event: str, what: Mapping[str, str]) -> bool:
        if self._clock.monotonic_ms() >= self._window_ends:
            self._begin_window()
        self.counts[event] += 1
        return limit.admits((event, *what.items()))

    def _begin_window(self) -> None:
        self._window_ends = self._clock.monotonic_ms() + WINDOW_MS
        for limit in (self._denials, self._failures):
            counts, others = limit.take()
            for (event, *what), count in counts:
                self._event("suppressed", {"of": event, **dict(what), "count": count})
            if others:
                self._event("suppressed", {"of": limit.last_event, "count": others})

    def _event(self, event: str, content: Mapping[str, Any]) -> None:
        self._write(self._line(event, content))

    def _line(self, event: str, content: Mapping[str, Any]) -> str:
        at = datetime.fromtimestamp(self._clock.wall_ms() / 1_000, UTC).isoformat(timespec="milliseconds")
        return json.dumps({"at": at, "node": self._node_id, "event": event, **content})


class _EventLimit:
    """Events of one window: the first of each kind is written, the others are counted."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Any, ...], int] = {}
        self._others = 0
        self.last_event = ""

    def admits(self, key: tuple[Any, ...]) -> bool:
        """True for the first event of this kind."""
        self.last_event = key[0]
        known = self._counts.get(key)
        if known is not None:
            self._counts[key] = known + 1
            return False
        if len(self._counts) >= EVENTS_MAX:
            self._others += 1
            return False
        self._counts[key] = 0
        return True

    def take(self) -> tuple[list[tuple[tuple[Any, ...], int]], int]:
        """How many events were left out of each kind, and of further kinds. Begins the next window."""
        left_out = [(key, count) for key, count in self._counts.items() if count]
        others = self._others
        self._counts, self._others = {}, 0
        return left_out, others


def _origin(caller: Caller) -> dict[str, str]:
    return {
        "address": _short(caller.asked_from or caller.connection),
        "listener": _short(caller.listener),
        "client_id": _short(caller.client_id),
    }


_Part: TypeAlias = PartitionResult | CommittedPartition | DeletedRecords | DeletedGroup | ChangedTopic | ChangedPart
"""What is answered by itself."""


def _outcome(outcome: Any) -> str | dict[str, int]:
    if outcome is None:
        return "unknown"
    parts: Iterable[_Part] | None = None
    if isinstance(outcome, ChangedPartitions | CommittedPartitions | DeleteRecordsAnswer):
        parts = outcome.partitions
    elif isinstance(outcome, DeleteGroupsAnswer):
        parts = outcome.groups
    elif isinstance(outcome, ChangedTopics):
        parts = outcome.topics
    elif isinstance(outcome, ChangedParts):
        parts = outcome.parts
    if parts is not None:
        return dict(Counter("ok" if each.error is None else name_of(each.error) for each in parts))
    return name_of(outcome) if isinstance(outcome, TidelogError) else "ok"


def _short(text: str) -> str:
    """The text, cut so that it is short in its escaped form too."""
    kept = text[:TEXT_CHARACTERS_MAX]
    while len(json.dumps(kept)) > ESCAPED_CHARACTERS_MAX:
        kept = kept[: len(kept) // 2]
    return text if len(kept) == len(text) else f"{kept}... ({len(text)} characters)"


def _plain(value: Any, items: int) -> Any:
    """The value for JSON, with a limited number of items of a collection, without the fields of dataclasses that have
    `repr=False`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no word for it
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name), items) for each in fields(value) if each.repr}
    if isinstance(value, Mapping):
        return {_short(str(key)): _plain(item, items) for key, item in islice(value.items(), items)}
    if isinstance(value, tuple | list):
        more = [f"{len(value) - items} more"] if len(value) > items else []
        return [*(_plain(each, items) for each in value[:items]), *more]
    return _short(value.hex() if isinstance(value, bytes) else str(value))
