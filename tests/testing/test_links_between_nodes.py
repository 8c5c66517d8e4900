"""The proxies between the nodes of a local cluster: what they pass on, hold back, and leave behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from testbed.links import Links
from testbed.socket_owners import HOST
from tidelog.types import Endpoint

WAIT_S = 30.0


@contextlib.contextmanager
def links_to(target: socket.socket, pids: dict[int, int]) -> Iterator[Links]:
    """Links of node 0, which is this listening socket, and node 1."""
    links = Links([(0, Endpoint(HOST, target.getsockname()[1])), (1, Endpoint(HOST, 1))], pids.get)
    links.start()
    try:
        yield links
    finally:
        links.close()


def echoed(links: Links, target: socket.socket, data: bytes) -> bytes:
    """What arrives at node 0 of the bytes that this process sends."""
    with socket.create_connection((HOST, links.address_of(0).port), WAIT_S) as sender:
        sender.sendall(data)
        inner, _ = target.accept()
        with inner:
            return inner.recv(len(data))


def test_no_connection_is_searched_for_while_nothing_is_cut() -> None:
    """A search takes milliseconds of the thread that carries all links. With one for each connection, the nodes of a
    busy machine connected again faster than they were accepted after a kill: their cluster did not recover for minutes.
    """
    searched = AssertionError("the owner of a connection was searched for")
    with socket.create_server((HOST, 0)) as target, links_to(target, {}) as links:
        target.settimeout(WAIT_S)
        with patch("testbed.links.owner_of", side_effect=searched):
            assert [echoed(links, target, b"%d" % number) for number in range(10)] == [b"%d" % n for n in range(10)]


def test_the_end_of_a_process_does_not_pass_a_cut() -> None:
    program = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.send(b'x'); input()"
    pids: dict[int, int] = {}
    with socket.create_server((HOST, 0)) as target, links_to(target, pids) as links:
        target.settimeout(WAIT_S)
        command = [sys.executable, "-c", program, str(links.address_of(0).port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as node:
            pids[1] = node.pid
            inner, _ = target.accept()
            with inner:
                assert inner.recv(1) == b"x"
                links.cut((1, 0), (0, 1))
                node.kill()
                node.wait(WAIT_S)
                del pids[1]
                assert echoed(links, target, b"later") == b"later", "another process is not cut off"
                assert select.select([inner], [], [], 0)[0] == [], "the end was held back"
                links.repair(1, 0)
                inner.settimeout(WAIT_S)
                assert inner.recv(1) == b""


def test_links_that_end_among_new_connections_leave_no_task(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server((HOST, 0)) as unused:
        refuses = Endpoint(HOST, unused.getsockname()[1])
    pids: dict[int, int] = {}
    with caplog.at_level(logging.ERROR, "asyncio"):
        for _ in range(20):
            links = Links([(0, refuses)], pids.get)
            links.start()
            with contextlib.ExitStack() as stack:
                for _ in range(20):
                    stack.enter_context(socket.create_connection((HOST, links.address_of(0).port), WAIT_S))
                links.close()
        del links
        gc.collect()
    assert caplog.records == []
