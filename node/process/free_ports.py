"""Free ports of loopback, for processes that must know each other's addresses before they start."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterable
from typing import Final

HOST: Final = "127.0.0.1"
PORTS: Final = range(18_000, 30_000)
"""Below the system's range for outgoing connections (32768 and up on Linux): a connection that is made meanwhile, or
a server that asks for any free port, never gets one of these. Below Kubernetes' range of node ports (30000 to 32767)
too: on a machine with a cluster, its packet filter takes the connections to such a port away from its listener."""


def free_ports(count: int) -> list[int]:
    """Distinct ports of 127.0.0.1 without a listener. For a minute no other caller gets them, in any process. Raises
    OSError (EADDRINUSE) if there are fewer."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError):
            _reserve(port)
            found.append(port)
        if len(found) >= count:
            return found
    raise OSError(
        errno.EADDRINUSE,
        f"fewer than {count} free ports from {PORTS.start} to {PORTS.stop}: stop a process there, or wait a minute for "
        "ports that were given to others",
    )


def keep_ports(ports: Iterable[int]) -> None:
    """Let no caller of `free_ports` get these ports for a minute, since a process that has ended listens there again.
    Has no effect on ports that are in use."""
    for port in ports:
        with contextlib.suppress(OSError):
            _reserve(port)


def _reserve(port: int) -> None:
    """Leave a connection in the state TIME_WAIT at the port, which lasts a minute on Linux. Raises OSError if a socket
    or such a connection has the port.

    Without it, two clusters that start together get the same port now and then, and one node ends at its start.
    """
    with socket.socket() as own:
        own.bind((HOST, port))  # without SO_REUSEADDR, so that TIME_WAIT refuses it
        # The connection keeps the option, with which servers set their sockets up: it does not refuse those.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.connect((HOST, port))  # to itself, which needs no listener
