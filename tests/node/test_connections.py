"""A caller's connection is found by the address that gRPC reports, and ends for both sides."""

from __future__ import annotations

import asyncio
import socket

import pytest

from node.listeners.grpc import connections
from node.listeners.grpc.connections import ConnectionShutdown, connections_to, shut_down_connections


@pytest.mark.parametrize(
    ("bind", "host", "endpoint_format"),
    [
        ("127.0.0.1", "127.0.0.1", "ipv4:127.0.0.1:{}"),
        ("::1", "::1", "ipv6:%5B::1%5D:{}"),
        ("::", "127.0.0.1", "ipv4:127.0.0.1:{}"),
    ],
    ids=["IPv4", "IPv6", "IPv4 at a listener for both, as gRPC's are"],
)
def test_a_connection_is_shut_down_and_no_other(bind: str, host: str, endpoint_format: str) -> None:
    pair = socket.socketpair()  # a process has others too
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.create_server((bind, 0), family=family, dualstack_ipv6=bind == "::") as server:
        address = host, server.getsockname()[1]
        with socket.create_connection(address) as caller, socket.create_connection(address) as another:
            accepted, other = server.accept()[0], server.accept()[0]
            with accepted, other:
                peer = endpoint_format.format(caller.getsockname()[1])
                assert shut_down_connections({peer, "node 3"}) == 1
                assert caller.recv(1) == b"", "the caller sees its end"
                other.sendall(b"x")
                assert another.recv(1) == b"x"
    for end in pair:
        end.close()


@pytest.mark.parametrize("peer", ["unix:/tmp/socket", "ipv4:127.0.0.1:1", "", "node 3"])
def test_a_connection_of_another_process_is_not_closed(peer: str) -> None:
    assert not shut_down_connections({peer})


async def test_one_search_finds_all_connections_that_are_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each overdue answer looked through all open files: 3,000 calls of one connection, with 3,000 open files, stopped
    the event loop for a minute."""
    searches: asyncio.Queue[set[str]] = asyncio.Queue()
    monkeypatch.setattr(connections, "shut_down_connections", lambda peers: searches.put_nowait({*peers}))
    shutdown, asked = ConnectionShutdown(), {f"ipv4:127.0.0.1:{40_000 + number}" for number in range(5)}
    for peer in [*asked] * 1_000:
        shutdown.request(peer)
    assert await searches.get() == asked
    shutdown.request("ipv4:127.0.0.1:50000")
    assert await searches.get() == {"ipv4:127.0.0.1:50000"}, "a later one is not forgotten"
    assert searches.empty()


def test_open_connections_are_counted_by_the_port_that_they_were_made_to() -> None:
    """Both ends of a connection within one machine have entries; only the side of the listener counts."""
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::", 0), family=socket.AF_INET6) as second,
    ):
        ports = {"GRPC": first.getsockname()[1], "OUTSIDE": second.getsockname()[1], "IDLE": 1}
        with (
            socket.create_connection(("127.0.0.1", ports["GRPC"])),
            socket.create_connection(("::1", ports["OUTSIDE"])),
        ):
            accepted = [first.accept()[0], second.accept()[0]]
            assert connections_to(ports) == {"GRPC": 1, "OUTSIDE": 1, "IDLE": 0}
            for each in accepted:
                each.close()
        assert connections_to(ports) == {"GRPC": 0, "OUTSIDE": 0, "IDLE": 0}
