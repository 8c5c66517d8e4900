"""SCRAM: what a handshake costs the node and the client, and what a session costs each call.

The node's part is the processor time of its one thread: 10,000 users, both messages of a handshake. Over gRPC, clients
on the same machine and the same event loop take part too. The keys of the password are derived once and kept, as
clients do.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from bench.figure import Better, Figure, Run
from node.api.sasl_requests import AuthenticateAnswer, AuthenticateRequest
from node.boundary.boundary import Boundary
from node.listeners.grpc.server import GrpcServer
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.security.sasl_authenticator import SaslAuthenticator
from node.security.sasl_settings import SaslConfig
from replication.controller.image import EMPTY, ClusterImage
from replication.controller.metadata_records import ScramCredentialRecord
from tidelog.clock import MachineClock
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.scram import ITERATIONS, PasswordKeys, ScramClient, credential_of, derive_keys
from tidelog.types import Endpoint, ScramMechanism

USERS = 10_000
HANDSHAKES = 2_000
AT_ONCE = 32
CALL_MS = 30_000
SALT = bytes(16)
CALLER = RequestContext("outside", "ipv4:10.0.0.1:40000")


def figures(run: Run) -> Iterator[Figure]:
    count = 100 if run.quick else HANDSHAKES
    for mechanism in ScramMechanism:
        name = mechanism.mechanism_name
        began = time.perf_counter()
        keys = derive_keys(mechanism, "tulip", SALT, ITERATIONS)
        derived_ms = (time.perf_counter() - began) * 1e3
        yield Figure(f"{name}: keys of a password, once for each client", derived_ms, "ms", better=Better.LESS)
        sasl = _node(mechanism)
        seconds = asyncio.run(_handshakes(_in_process(sasl), mechanism, keys, count, at_once=1))
        yield Figure(f"{name}: handshakes, node and client without network", count / seconds, "1/s")
        seconds = asyncio.run(_over_grpc(sasl, mechanism, keys, count))
        yield Figure(f"{name}: handshakes over gRPC", count / seconds, "1/s")
        yield Figure(f"{name}: token of a call", _token_us(sasl, mechanism, keys, count), "us", better=Better.LESS)


Ask: TypeAlias = Callable[[AuthenticateRequest], Awaitable[AuthenticateAnswer | sasl_pb2.AuthenticateResponse]]


def _node(mechanism: ScramMechanism) -> SaslAuthenticator:
    made = credential_of(mechanism, "tulip", SALT)
    record = ScramCredentialRecord("user", mechanism, SALT, made.stored_key, made.server_key, ITERATIONS)
    users = {(f"user-{n}", mechanism): replace(record, name=f"user-{n}") for n in range(USERS)}
    image: ClusterImage = replace(EMPTY, cluster_id="bench", sasl_secret=b"secret", scram=users)
    sasl = SaslAuthenticator(SaslConfig(), ("outside",), clock=MachineClock(), rng=random.SystemRandom())
    sasl.follow(image)
    return sasl


async def _log_in(ask: Ask, mechanism: ScramMechanism, keys: PasswordKeys, number: int) -> str:
    """One handshake. Returns the token."""
    client = ScramClient(mechanism, f"user-{number % USERS}", f"nonce-{number}")
    name = mechanism.mechanism_name
    challenge = await ask(AuthenticateRequest(name, b"", client.first()))
    client.asked(challenge.auth_bytes)
    answer = await ask(AuthenticateRequest(name, challenge.handshake, client.final(challenge.auth_bytes, keys)))
    client.verify(answer.auth_bytes)
    return answer.token


async def _handshakes(ask: Ask, mechanism: ScramMechanism, keys: PasswordKeys, count: int, *, at_once: int) -> float:
    """How long so many handshakes take (seconds)."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await _log_in(ask, mechanism, keys, number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())
    return time.perf_counter() - began


def _in_process(sasl: SaslAuthenticator) -> Ask:
    return lambda request: sasl.authenticate(request, CALLER)


async def _over_grpc(sasl: SaslAuthenticator, mechanism: ScramMechanism, keys: PasswordKeys, count: int) -> float:
    server, transport = GrpcServer("outside", boundary=Boundary()), GrpcTransport()
    address = server.bind(Endpoint("127.0.0.1", 0))
    server.serve({"Sasl": Gate("Sasl", sasl)}, sasl)
    await server.start()

    async def ask(request: AuthenticateRequest) -> sasl_pb2.AuthenticateResponse:
        message = sasl_pb2.AuthenticateRequest(
            mechanism=request.mechanism, handshake=request.handshake, auth_bytes=request.auth_bytes
        )
        return await transport.call(address, methods.SASL_AUTHENTICATE, message, timeout_ms=CALL_MS)

    try:
        return await _handshakes(ask, mechanism, keys, count, at_once=AT_ONCE)
    finally:
        await transport.close()
        await server.stop(0)


def _token_us(sasl: SaslAuthenticator, mechanism: ScramMechanism, keys: PasswordKeys, count: int) -> float:
    """What finding the session of a call takes (microseconds)."""
    token = asyncio.run(_log_in(_in_process(sasl), mechanism, keys, 0))
    began = time.perf_counter()
    for _ in range(count):
        sasl.session_of("outside", token)
    return (time.perf_counter() - began) / count * 1e6
