"""Shuts down a connection by the address of its peer: gRPC exposes neither sockets nor file descriptors."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_MAPPED: Final = "::ffff:"
"""Prefix of IPv4 addresses on a socket for both versions of IP. gRPC reports them without it."""


def shut_down_connection(peer: str) -> bool:
    """Shut down the TCP connection to a caller in both directions. peer: as gRPC reports it, `ipv4:127.0.0.1:40000` or
    `ipv6:%5B::1%5D:40000`. Returns True if there was such a connection."""
    found = re.fullmatch(r"ipv[46]:\[?([^\]]+?)\]?:(\d+)", unquote(peer))
    if found is None:
        return False
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, not a socket, or not connected
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family not in {socket.AF_INET, socket.AF_INET6}:
                    continue
                host, port = connection.getpeername()[:2]
                if (host.removeprefix(_MAPPED), port) == (found[1], int(found[2])):
                    connection.shutdown(socket.SHUT_RDWR)
                    return True
    return False
