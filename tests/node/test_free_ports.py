"""Ports for processes that start later."""

from __future__ import annotations

import errno
import socket

import pytest

from node.process import free_ports as module
from node.process.free_ports import free_ports, keep_ports


def test_a_port_is_given_to_one_caller_who_can_listen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    monkeypatch.setattr(module, "PORTS", range(port, port + 1))
    with pytest.raises(OSError, match="wait a minute") as refused:
        free_ports(1)
    assert refused.value.errno == errno.EADDRINUSE
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_whose_process_has_ended_is_kept_for_its_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        keep_ports([port])  # no effect, and no error
    keep_ports([port])
    with socket.create_server(("127.0.0.1", port)):
        pass
    monkeypatch.setattr(module, "PORTS", range(port, port + 1))
    with pytest.raises(OSError, match="fewer than 1 free ports"):
        free_ports(1)


def test_a_port_with_a_listener_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(module, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="fewer than 1 free ports"):
            free_ports(1)
