"""An authenticator with users, a time and an image."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from node.api.sasl_requests import AuthenticateAnswer, AuthenticateRequest
from node.requests.context import RequestContext
from node.security.authorizer import AuditTrail
from node.security.sasl_authenticator import SaslAuthenticator
from node.security.sasl_settings import SaslConfig
from replication.controller.image import EMPTY, ClusterImage
from replication.controller.metadata_records import ScramCredentialRecord
from tests.node.later_executor import Later
from tidelog.security.scram import ScramClient, credential_of, derive_keys
from tidelog.types import Millis, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
LIFETIME_MS = 60_000
CONFIG = SaslConfig(lifetime_ms=Millis(LIFETIME_MS), failure_delay_ms=Millis(700))


class SetTime:
    """A clock that stands still. Sleepers wait until the time is moved."""

    def __init__(self) -> None:
        self.now, self.sleepers = 1_000, list[tuple[int, asyncio.Future[None]]]()

    def wall_ms(self) -> Millis:
        return Millis(self.now)

    def monotonic_ms(self) -> Millis:
        return Millis(self.now)

    async def sleep_ms(self, ms: int) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now + ms, woken))
        await woken

    async def move(self, ms: int) -> None:
        self.now += ms
        for due, woken in self.sleepers:
            if due <= self.now and not woken.done():
                woken.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)  # noqa: TID251 - lets the woken tasks run


def user(
    name: str, password: str, mechanism: ScramMechanism = SHA_256, iterations: int = 4_096
) -> ScramCredentialRecord:
    made = credential_of(mechanism, password, b"salt of 16 bytes", iterations)
    return ScramCredentialRecord(name, mechanism, made.salt, made.stored_key, made.server_key, made.iterations)


def image_of(*users: ScramCredentialRecord) -> ClusterImage:
    return replace(
        EMPTY, cluster_id="cluster", sasl_secret=b"secret", scram={(each.name, each.mechanism): each for each in users}
    )


def caller(listener: str = "outside", host: str = "10.0.0.1", port: int = 40_000) -> RequestContext:
    return RequestContext(listener, f"ipv4:{host}:{port}")


class World:
    """A node with the user alice, and callers."""

    def __init__(
        self,
        config: SaslConfig = CONFIG,
        audit: AuditTrail | None = None,
        listeners: tuple[str, ...] = ("outside", "other", "kafka"),
    ) -> None:
        self.clock, self.executor = SetTime(), Later()
        rng = random.Random(7)
        self.sasl = SaslAuthenticator(
            config,
            listeners,
            clock=self.clock,
            rng=rng,
            executors=lambda _name: self.executor,
            audit=audit,
        )
        self.sasl.follow(image_of(user("alice", "tulip"), user("bob", "rose")))

    async def begin(
        self, name: str = "alice", at: RequestContext | None = None, renewed: str = ""
    ) -> tuple[ScramClient, AuthenticateAnswer]:
        client = ScramClient(SHA_256, name, "nonce")
        request = AuthenticateRequest("SCRAM-SHA-256", b"", client.first(), renewed)
        return client, await self.sasl.authenticate(request, at or caller())

    async def complete(
        self, client: ScramClient, first: AuthenticateAnswer, password: str, at: RequestContext | None = None
    ) -> AuthenticateAnswer:
        keys = derive_keys(SHA_256, password, *client.asked(first.auth_bytes))
        request = AuthenticateRequest("SCRAM-SHA-256", first.handshake, client.final(first.auth_bytes, keys))
        answer = await self.sasl.authenticate(request, at or caller())
        client.verify(answer.auth_bytes)
        return answer

    async def log_in(
        self, name: str = "alice", password: str = "tulip", at: RequestContext | None = None, renewed: str = ""
    ) -> AuthenticateAnswer:
        client, first = await self.begin(name, at, renewed)
        return await self.complete(client, first, password, at)

    def principal(self, token: str, listener: str = "outside") -> str:
        return self.sasl.session_of(listener, token).principal
