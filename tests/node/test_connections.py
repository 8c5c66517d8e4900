"""A caller's connection is found by the address that gRPC reports, and ends for both sides."""

from __future__ import annotations

import socket

import pytest

from node.listeners.grpc.connections import shut_down_connection


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
                assert shut_down_connection(endpoint_format.format(caller.getsockname()[1]))
                assert caller.recv(1) == b"", "the caller sees its end"
                other.sendall(b"x")
                assert another.recv(1) == b"x"
    for end in pair:
        end.close()


@pytest.mark.parametrize("peer", ["unix:/tmp/socket", "ipv4:127.0.0.1:1", "", "node 3"])
def test_a_connection_of_another_process_is_not_closed(peer: str) -> None:
    assert not shut_down_connection(peer)
