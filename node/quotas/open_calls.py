"""Limits of the open calls and streams of one peer address and of one principal.

Not here: streams of one connection (`grpc.max_concurrent_streams` in node/listeners/grpc/server.py).
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import ThrottlingQuotaExceeded

CALLS_PER_IP: Final = "max.open.calls.per.ip"
CALLS_PER_PRINCIPAL: Final = "max.open.calls.per.principal"
CALLS_MAX: Final = 20_000
"""Default of both limits. Clients open a few calls each; a call takes some KiB."""

_ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of all callers that are not authenticated. It has no limit: one caller would exhaust it for all others,
who are limited by their addresses."""


class OpenCalls:
    """The numbers of open calls and streams of a node. Its listeners share them."""

    def __init__(self, *, per_ip: int = CALLS_MAX, per_principal: int = CALLS_MAX) -> None:
        self._per_ip, self._per_principal = per_ip, per_principal
        self._by_ip: dict[str, int] = {}
        self._by_principal: dict[str, int] = {}
        self.refused = 0
        """Calls and streams that were refused since the start."""

    def open(self, address: str, principal: str) -> None:
        """Count a call or stream. Raises ThrottlingQuotaExceeded; then it is not counted."""
        self._ensure_below(self._by_ip.get(address, 0), f"address {address}", CALLS_PER_IP, self._per_ip)
        if principal != _ANONYMOUS:
            count = self._by_principal.get(principal, 0)
            self._ensure_below(count, f"principal {principal}", CALLS_PER_PRINCIPAL, self._per_principal)
            self._by_principal[principal] = count + 1
        self._by_ip[address] = self._by_ip.get(address, 0) + 1

    def close(self, address: str, principal: str) -> None:
        """Count a call or stream that has ended, after `open` has counted it."""
        _remove(self._by_ip, address)
        if principal != _ANONYMOUS:
            _remove(self._by_principal, principal)

    def _ensure_below(self, count: int, caller: str, setting: str, limit: int) -> None:
        if count >= limit:
            self.refused += 1
            raise ThrottlingQuotaExceeded(
                f"{caller} has {count} open calls and streams, the limit {setting} is {limit}: close some, or raise "
                "the setting on the nodes"
            )


def _remove(counts: dict[str, int], name: str) -> None:
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]  # else every address that ever called would take memory
