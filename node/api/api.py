"""One kind of request: its name, the types of its values, and the rules that its requests obey."""

from __future__ import annotations

import re
from dataclasses import field
from enum import Enum
from functools import cache
from typing import Generic, TypeVar

from node.api.permissions import Permission
from tidelog.types import QuotaType
from tidelog.values import dataclass

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class Audience(Enum):
    """The callers that may send requests of an API."""

    ANYONE = "all callers, also before they have authenticated"
    CLIENTS = "all callers"
    NODES = "nodes of the cluster"


@dataclass(frozen=True, slots=True)
class Api(Generic[Asked, Answered]):
    """One kind of request. Metrics, the slow-request log, authorization and quotas know a request by its name."""

    name: str
    """The service and the operation, `Data.Fetch`."""
    asked: type[Asked] = field(repr=False)
    answered: type[Answered] = field(repr=False)
    permission: Permission = field(repr=False)
    audience: Audience = Audience.CLIENTS
    audited: bool = False
    """True for an administrative change: each request is recorded in the audit log."""
    quota: QuotaType | None = None
    """The client quota that its bytes or partitions use, besides the quota for time on the event loop."""
    wait: str = ""
    """The field of a request that says how long it may wait for records, or for a look at a damaged log (ms)."""
    is_forwarded: bool = False
    """True for a change that every node accepts and passes on to the active controller."""
    is_stream: bool = False
    """True if requests and answers flow independently of each other on one open stream."""
    waits_for_others: bool = False
    """True for a request that waits, without a limit of its own, until other clients have sent theirs."""
    has_rpc: bool = True
    """False for what only clients of Kafka's protocol ask: gRPC has no method for it."""

    @property
    def service(self) -> str:
        """The first part of the name: `Data`."""
        return self.name.partition(".")[0]

    @property
    def operation(self) -> str:
        """The second part of the name: `OffsetForLeaderEpoch`."""
        return self.name.partition(".")[2]

    @property
    def handler(self) -> str:
        """The name of the method that serves it: `offset_for_leader_epoch`."""
        return _with_underscores(self.operation)

    def wait_of(self, asked: Asked) -> int | None:
        """How long the request may wait (milliseconds); None: without a limit."""
        if self.waits_for_others:
            return None
        wait_ms: int = getattr(asked, self.wait) if self.wait else 0
        return wait_ms

    @property
    def is_throttled(self) -> bool:
        """False if no quota delays its requests. A delay of nodes would slow replication, and with it every client.
        Before authentication all callers are one user, one of which could keep the others from logging in."""
        return self.audience is Audience.CLIENTS

    def __str__(self) -> str:
        return self.name


@cache
def _with_underscores(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
