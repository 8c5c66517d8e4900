"""An audit log with a clock that a test advances."""

from __future__ import annotations

import json
from typing import Any

from node.api.api import Api
from node.api.table import ADMIN_CREATE_TOPICS
from node.requests.context import RequestContext
from node.security.audit_log import AuditLog
from tidelog.security.acls import (
    AclDecision,
    AclOperation,
    ResourceType,
)
from tidelog.types import Millis

ALICE = RequestContext("client", "ipv4:10.0.0.1:40000", "User:alice", client_id="loader", host="10.0.0.1")
DENIED = AclDecision(allowed=False, rule=None, reason="no ACL refers to the resource: denied by default")


class HandClock:
    """Moved by the test."""

    now = 0

    def wall_ms(self) -> Millis:
        return Millis(1_700_000_000_000 + self.now)

    def monotonic_ms(self) -> Millis:
        return Millis(self.now)

    async def sleep_ms(self, ms: int) -> None:
        raise AssertionError("the test moves the clock")


class World:
    def __init__(self) -> None:
        self.clock, self.lines = HandClock(), list[str]()
        self.log = AuditLog(self.lines.append, clock=self.clock, node_id=3)

    def deny(self, topic: str = "orders", context: RequestContext = ALICE) -> None:
        self.log.denied(
            context, ADMIN_CREATE_TOPICS.name, AclOperation.CREATE, ResourceType.TOPIC, topic, DENIED.reason
        )

    def change(self, asked: Any, outcome: Any, api: Api[Any, Any] = ADMIN_CREATE_TOPICS) -> dict[str, Any]:
        self.log.changed(ALICE, api, asked, outcome)
        event: dict[str, Any] = json.loads(self.lines[-1])
        return event

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]
