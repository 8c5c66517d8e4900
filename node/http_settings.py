"""Settings of the HTTP port of a node, which serves metrics and the web console. Its address: `metrics.listener`."""

from __future__ import annotations

from collections.abc import Mapping

from node.listener_settings import ListenerTls
from tidelog.settings import flag, setting, text
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """What the port serves, and whether with TLS."""

    tls_listener: str = setting("metrics.tls.listener", "", text())
    """the listener whose certificate, authorities and `ssl.principal.mapping.rules` the port of `metrics.listener`
    uses, which then speaks HTTPS; empty: plain HTTP. If that listener requires certificates, the port asks for them,
    and goes on without"""
    has_console: bool = setting("console.enabled", True, flag())
    """true: `metrics.listener` also serves the web console ([console.md](console.md))"""

    def tls(self, of_listeners: Mapping[str, ListenerTls | None]) -> ListenerTls | None:
        """The files for the port; None for plain HTTP. of_listeners: by name."""
        return of_listeners.get(self.tls_listener)

    def mistake(self, tls: Mapping[str, ListenerTls | None]) -> tuple[str, str] | None:
        """The setting that cannot be followed, and why. tls: of each listener, by name."""
        if not self.tls_listener or tls.get(self.tls_listener) is not None:
            return None
        known = [name for name, files in tls.items() if files is not None]
        remedy = f"name one of {', '.join(known)}" if known else "none has it: remove the setting"
        return "metrics.tls.listener", f"no listener {self.tls_listener!r} has TLS; {remedy}"
