"""A node that still starts refuses by name, and answers once it can."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from node.listeners.grpc.gate import Gate
from node.process.node import SERVICES
from node.requests.types.context import RequestContext
from tidelog.errors import NodeNotAvailable
from tidelog.protocol import methods
from tidelog.protocol.v1 import quorum_pb2

CALLER = RequestContext("client", "here")


class Introducing:
    async def introduce(self, request: Any, context: RequestContext) -> str:
        return f"{context.connection} asked"


def test_every_service_of_the_table_has_a_gate() -> None:
    assert set(SERVICES) == {method.service for method in methods.ALL}


def test_calls_and_streams_are_refused_until_the_gate_is_open() -> None:
    async def story() -> None:
        for name in SERVICES:
            gate = Gate(name)
            for method in methods.of_service(name):
                with pytest.raises(NodeNotAvailable, match=str(method).replace(".", r"\.")):
                    await getattr(gate, method.attribute)(None, CALLER)

    asyncio.run(story())


def test_an_open_gate_passes_on_even_what_was_looked_up_before() -> None:
    async def story() -> None:
        gate = Gate(methods.QUORUM)
        introduce = gate.introduce  # type: ignore[attr-defined]  # as a listener does, once
        gate.open(Introducing())
        assert await introduce(quorum_pb2.IntroduceRequest(), CALLER) == "here asked"

    asyncio.run(story())
