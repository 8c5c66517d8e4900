"""Which cluster a client connects to, and with which credentials: the one form of it in commands, jobs and Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9192"
"""The first node of `tidelog up`."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A cluster and the credentials for it."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    """host:port of one or more nodes, with commas."""
    tls: Tls | None = None
    """None: plain text."""
    sasl: Sasl | None = None
    """None: no authentication by SASL."""
    client_id: str = ""
    """In quotas and in the logs of nodes."""

    @property
    def of_client(self) -> dict[str, Any]:
        """The arguments of a client besides the addresses: `Producer(connection.bootstrap, **connection.of_client)`."""
        return {"tls": self.tls, "sasl": self.sasl, "client_id": self.client_id}
