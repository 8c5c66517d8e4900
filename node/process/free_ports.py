"""Free ports of loopback, for processes that must know each other's addresses before they start."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from typing import Final

PORTS: Final = range(18_000, 30_000)
"""Below the system's range for outgoing connections (32768 and up on Linux): a connection that is made meanwhile, or
a server that asks for any free port, never gets one of these. Below Kubernetes' range of node ports (30000 to 32767)
too: on a machine with a cluster, its packet filter takes the connections to such a port away from its listener."""


def free_ports(count: int) -> list[int]:
    """Distinct ports of 127.0.0.1 without a listener, chosen at random so that programs that ask at the same time
    rarely get the same one. Raises OSError (EADDRINUSE) if there are fewer."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) >= count:
            return found
    raise OSError(
        errno.EADDRINUSE, f"fewer than {count} free ports from {PORTS.start} to {PORTS.stop}: stop a process there"
    )
