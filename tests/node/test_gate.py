"""A node that still starts refuses by name, and answers once it can."""

from __future__ import annotations

import pytest

from node.api.quorum_requests import IntroduceRequest
from node.api.table import APIS, QUORUM_INTRODUCE
from node.process.node import SERVICES
from node.requests.context import RequestContext
from node.requests.gate import Gate
from tidelog.errors import NodeNotAvailable
from tidelog.protocol import methods
from tidelog.types import NodeId

CALLER = RequestContext("client", "here")


class Introducing:
    async def introduce(self, _asked: IntroduceRequest, context: RequestContext) -> str:
        return f"{context.connection} asked"


def test_every_service_has_a_gate_and_every_rpc_an_api() -> None:
    assert set(SERVICES) == {str(method).partition(".")[0] for method in methods.ALL}
    assert {name for name, api in APIS.items() if api.has_rpc} == {str(method) for method in methods.ALL}


async def test_requests_and_streams_are_refused_until_the_gate_is_open() -> None:
    for name in SERVICES:
        gate = Gate(name)
        for api in APIS.values():
            if api.name.startswith(f"{name}."):
                with pytest.raises(NodeNotAvailable, match=api.name.replace(".", r"\.")):
                    await gate.handler(api)(None, CALLER)


async def test_a_handler_looked_up_before_the_gate_opened_works_after_it() -> None:
    gate = Gate("Quorum")
    introduce = gate.handler(QUORUM_INTRODUCE)  # as a listener does, once
    gate.open(Introducing())
    assert str(await introduce(IntroduceRequest(NodeId(1)), CALLER)) == "here asked"
