"""The server packages have short names, which an application may use for its own modules."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tidelog.cli.server_packages import server_module
from tidelog.errors import UnsupportedVersion


def test_a_module_of_the_application_with_such_a_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = ModuleType("storage")
    own.__file__ = "/app/storage.py"
    monkeypatch.setitem(sys.modules, "storage", own)
    with pytest.raises(
        UnsupportedVersion, match=r"another module 'storage' \(/app/storage.py\).*give yours another name"
    ):
        server_module("testbed.faulty_cluster", "testing")


def test_the_server_packages_themselves_are_found_again() -> None:
    module = server_module("testbed.faulty_cluster", "testing")
    assert server_module("testbed.faulty_cluster", "testing") is module
