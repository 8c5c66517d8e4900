"""A link between nodes is known by the process at its other end."""

from __future__ import annotations

import os
import socket
from unittest.mock import patch

import psutil
import pytest

from testbed.socket_owners import HOST, owner_of

OTHER = os.getppid()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_process_with_the_other_end_is_found_without_parsing_every_connection(family: int) -> None:
    """gRPC reaches 127.0.0.1 with sockets of IPv6."""
    with socket.create_server((HOST, 0)) as listening, socket.socket(family) as client:
        target = listening.getsockname()[1]
        client.connect(("::ffff:127.0.0.1" if family == socket.AF_INET6 else HOST, target))
        port = client.getsockname()[1]
        with patch.object(psutil, "Process", side_effect=AssertionError("it parses all connections of the machine")):
            assert owner_of(port, target, {1: OTHER, 2: os.getpid()}) == 2
            assert owner_of(port, target, {1: OTHER}) is None
            assert owner_of(port, target + 1, {2: os.getpid()}) is None, "another connection of that port"


def test_a_process_that_has_ended_has_no_connections() -> None:
    assert owner_of(1, 1, {1: 2**30}) is None
