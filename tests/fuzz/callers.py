"""Who sends hostile requests: strangers, and clients that authenticate with certificates or passwords; and a node whose
topics only some of them may use."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import grpc

from node.security.sasl_settings import SaslConfig
from tests.certificates import Authority
from tests.fuzz.refused import everything
from tests.node.real_coordinators import make_group_and_transaction
from tests.node.real_nodes import CALL_MS, OPERATOR, OUTSIDE, RealNodes, real_nodes
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import Method
from tidelog.protocol.sasl_client import SESSION_KEY, SaslClient
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.types import INTERNAL_TOPICS, Endpoint, Offset, ProducerId

WAYS: Final = ("certificates", "passwords")
"""How callers prove who they are."""

PERMITTED: Final = "orders"
"""The topic that one of the clients may use."""

GROUP: Final = "readers"
TRANSACTIONAL_ID: Final = "billing"
"""The group and the transactional id that this client may use. The group has an offset of the secret topic."""

SECRET: Final = "plans-of-others"
"""A topic that none of them may use. Its records contain its name."""


@dataclass(frozen=True)
class Caller:
    """One who sends requests to a listener. tls: None for plain text. token: of a session. shown: collects the RPCs
    whose answers name the secret topic although the request did not."""

    at: Endpoint
    tls: Tls | None = None
    token: str = ""
    shown: list[str] = field(default_factory=list, compare=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((SESSION_KEY, self.token),) if self.token else ()

    def channel(self) -> grpc.aio.Channel:
        if self.tls is None:
            return grpc.aio.insecure_channel(str(self.at))
        files = (self.tls.ca, self.tls.key, self.tls.certificate)
        pem = [None if each is None else Path(each).read_bytes() for each in files]
        return grpc.aio.secure_channel(str(self.at), grpc.ssl_channel_credentials(*pem))

    def answered(self, method: Method[Any, Any], asked: Sequence[bytes], answer: bytes) -> None:
        """The answer, or the text of the error, that this caller got."""
        if SECRET.encode() in answer and not any(SECRET.encode() in each for each in asked):
            self.shown.append(f"{method} shows what its caller may not see")


class Protected:
    """A node with ACLs, a listener for clients, and the two topics."""

    def __init__(self, nodes: RealNodes, home: Path, own: Authority, way: str) -> None:
        self.nodes, self._own, self._way = nodes, own, way
        self._listener = nodes.further[OUTSIDE][0]
        prefix = "User:CN=" if way == "certificates" else "User:"
        self._principals = {user: f"{prefix}{user}" for user in ("with", "without")}
        self.shown: list[str] = []

    async def prepare(self) -> None:
        """Make the users, the rules and the secret topic. The permitted topic exists."""
        at = str(self.nodes.further[OPERATOR][0])
        rights: list[tuple[ResourceType, str, AclOperation]] = [
            (ResourceType.TOPIC, PERMITTED, AclOperation.READ),
            (ResourceType.TOPIC, PERMITTED, AclOperation.WRITE),
            (ResourceType.TOPIC, PERMITTED, AclOperation.DESCRIBE_CONFIGS),
            (ResourceType.GROUP, GROUP, AclOperation.READ),
            (ResourceType.GROUP, GROUP, AclOperation.DELETE),
            (ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, AclOperation.WRITE),
        ]
        principal = self._principals["with"]
        rules = [
            AclBinding(kind, name, PatternType.LITERAL, principal, "*", operation, AclPermission.ALLOW)
            for kind, name, operation in rights
        ]
        async with Admin(at) as admin:
            for user in self._principals:
                await admin.set_password(user, f"{user} password", iterations=4_096)
            await admin.create_topic(SECRET, partitions=1, replication_factor=1)
            await admin.create_acls(rules)
            await make_group_and_transaction(self.nodes, GROUP, TRANSACTIONAL_ID, SECRET)
        async with Producer(at) as producer:
            await producer.send(SECRET, SECRET.encode())

    async def callers(self, *, permitted: bool) -> list[Caller]:
        """A stranger and the client without permission, or the client with permission for one topic."""
        user = "with" if permitted else "without"
        if self._way == "certificates":
            return [Caller(self._listener, self._own.client(user), shown=self.shown)]
        tls = Tls(self._own.ca)
        sasl = SaslClient(Sasl(user, f"{user} password"), random.Random(user))
        transport = GrpcTransport(tls=tls, sasl=sasl)
        try:
            known = Caller(self._listener, tls, await sasl.token_of(self._listener, CALL_MS), shown=self.shown)
        finally:
            await transport.close()
        stranger = Caller(self._listener, tls, shown=self.shown)
        return [known] if permitted else [known, known, stranger]

    def unchangeable(self, *, permitted: bool) -> dict[str, object]:
        """What the callers may not change, by name."""
        state: dict[str, Any] = everything(self.nodes.nodes[0])
        topics = state["the metadata"].topic_ids  # the logs of topics deleted before the round are closed later
        coordinated = INTERNAL_TOPICS  # members and transactions of an earlier round time out
        ends = [each for each in state["the ends of the logs"] if each[0] in topics and each[0] not in coordinated]
        if not permitted:
            return {**state, "the ends of the logs": ends}
        del state["the end of the metadata log"]  # producer ids are allocated
        image = replace(state["the metadata"], offset=Offset(0), next_producer_id=ProducerId(0))
        others = [each for each in ends if each[0] != PERMITTED]
        return {**state, "the metadata": image, "the ends of the logs": others}


@asynccontextmanager
async def protected(home: Path, way: str) -> AsyncIterator[Protected]:
    """way: how clients prove who they are."""
    own = Authority(home / "authority")
    tls = {OUTSIDE: own.node(requires=way == "certificates")}
    async with real_nodes(home, tls=tls, sasl=SaslConfig() if way == "passwords" else None) as nodes:
        yield Protected(nodes, home, own, way)
