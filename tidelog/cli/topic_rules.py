"""Which records a topic takes, as its settings say: what `produce` checks before it sends a record.

A leader refuses the whole batch of a record that breaks a rule (KIP-467), and with it lines that are right. The leader
still decides: its clock may differ, and a setting may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.cli.record_text import WrittenRecord
from tidelog.errors import InvalidRecord, InvalidTimestamp
from tidelog.types import INT64_MAX


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The settings that refuse single records."""

    needs_key: bool = False
    before_ms_max: int = INT64_MAX
    """How far behind the clock a timestamp may lie."""
    after_ms_max: int = INT64_MAX
    """How far ahead of the clock it may lie."""

    def check(self, record: WrittenRecord, now_ms: int) -> None:
        """Raise InvalidRecord, InvalidTimestamp for a record that the topic refuses. now_ms: since 1970."""
        if self.needs_key and record.key is None:
            raise InvalidRecord("it has no key, which a compacted topic needs")
        if record.timestamp is None or record.timestamp < 0:  # now, or none; other negative ones are never queued
            return
        least, most = max(0, now_ms - self.before_ms_max), now_ms + self.after_ms_max
        if not least <= record.timestamp <= most:
            raise InvalidTimestamp(
                f"its timestamp {record.timestamp} is out of range: milliseconds since 1970 from {least} to {most} are "
                "allowed now"
            )


def rules_of(settings: Mapping[str, str]) -> TopicRules:
    """The rules that the effective settings of a topic make. A setting that a node does not name refuses nothing."""
    needs_key = "compact" in settings.get("cleanup.policy", "").split(",")
    if settings.get("message.timestamp.type") == "LogAppendTime":  # the leader writes its own times
        return TopicRules(needs_key)
    before, after = (settings.get(f"message.timestamp.{side}.max.ms", INT64_MAX) for side in ("before", "after"))
    return TopicRules(needs_key, int(before), int(after))
