"""What one event decides about classic groups: records, and the answers of requests that waited."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from replication.coordination.classic_requests import ANSWERED_LATER, JoinGroupAnswer, LateAnswer, SyncGroupAnswer
from replication.coordination.coordinator_machine import Decision
from replication.coordination.group_records import GroupRecord
from replication.coordination.groups.classic_group import ClassicGroup
from tidelog.errors import TidelogError
from tidelog.types import Millis
from tidelog.values import dataclass


@dataclass(slots=True)
class ClassicStep:
    """An event on its way to a decision."""

    wall_ms: Millis
    records: list[GroupRecord] = field(default_factory=list)
    answers: dict[int, JoinGroupAnswer | SyncGroupAnswer | TidelogError] = field(default_factory=dict)
    """By the ticket of the request."""
    notices: list[str] = field(default_factory=list)

    def answer(self, ticket: int | None, answer: JoinGroupAnswer | SyncGroupAnswer | TidelogError) -> None:
        """Answer a request, if there is one."""
        if ticket is not None:
            self.answers[ticket] = answer

    def refuse(self, group: ClassicGroup, member_id: str, error: TidelogError) -> None:
        """Answer the request of a member that waits: to join, or for its assignment."""
        self.answer(group.joining.pop(member_id, None), error)
        self.answer(group.syncing.pop(member_id, None), error)

    def decision(self, ticket: int) -> Decision[Any]:
        """The decision on the request with this ticket: its answer, now or later."""
        own = self.answers.pop(ticket, ANSWERED_LATER)
        return self.decided(own)

    def decided(self, answer: Any = None) -> Decision[Any]:
        """The decision on an event that has this answer."""
        effects = tuple(LateAnswer(ticket, late) for ticket, late in self.answers.items())
        return Decision(answer, tuple(self.records), effects=effects, notice="; ".join(self.notices))
