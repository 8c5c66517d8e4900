"""Which process has one end of a TCP connection on 127.0.0.1.

On Linux the kernel's tables are searched for one line. psutil parses all of them once for each process: on a machine
with some hundred connections that takes tens of milliseconds of processor time, during which nothing else is passed on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

HOST: Final = "127.0.0.1"
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # gRPC's sockets are of IPv6, also for 127.0.0.1
_HOST: Final = b"%08X" % int.from_bytes(socket.inet_aton(HOST), sys.byteorder)
_INODE: Final = 9


def owner_of(port: int, peer_port: int, pids: Mapping[int, int]) -> int | None:
    """The key of the process that has the end `port` of the connection to `peer_port`. pids: the processes by their
    keys. None: none of them has it."""
    if not _TABLES[0].exists():
        return next((key for key, pid in pids.items() if _listed(pid, port)), None)
    link = _socket_of(port, peer_port)
    return None if link is None else next((key for key, pid in pids.items() if _has(pid, link)), None)


def _socket_of(port: int, peer_port: int) -> str | None:
    """The name of a socket among the open files of its process."""
    own, peer = b"%s:%04X" % (_HOST, port), b"%s:%04X" % (_HOST, peer_port)
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_bytes().splitlines():
                if own in line and peer in line:
                    fields = line.split()
                    if fields[1].endswith(own) and fields[2].endswith(peer):
                        return f"socket:[{int(fields[_INODE])}]"
    return None


def _has(pid: int, link: str) -> bool:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
        for file in files:
            with contextlib.suppress(OSError):
                if os.readlink(file.path) == link:  # noqa: PTH115 - a name, no path
                    return True
    return False


def _listed(pid: int, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(each.laddr.port == port for each in psutil.Process(pid).net_connections("tcp"))
    return False
