"""Certificates for tests: an authority in a directory, and what it signs."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from node.listener_settings import ListenerTls
from tidelog.clock import MachineClock
from tidelog.security.certificates import KeyAndCertificate, create_authority, create_client, create_node
from tidelog.security.tls_files import Tls

LOOPBACK = ("localhost", "127.0.0.1")


class Authority:
    """Signs certificates, whose files are in one directory: NAME.pem and NAME.key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._own = create_authority("test", now=_now(), days=2)
        self._write("ca", self._own)

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def node(self, name: str = "node", *hosts: str, age_days: int = 0, requires: bool = True) -> ListenerTls:
        """TLS of a listener. age_days: how long ago the certificate, which is valid for a day, was made. requires: a
        certificate of callers."""
        made = create_node(self._own, name, hosts or LOOPBACK, now=_now() - dt.timedelta(days=age_days), days=1)
        certificate, key = self._write(name, made)
        return ListenerTls(certificate, key, self.ca, requires)

    def client(self, name: str = "alice", *, age_days: int = 0) -> Tls:
        made = create_client(self._own, name, now=_now() - dt.timedelta(days=age_days), days=1)
        return Tls(self.ca, *self._write(name, made))

    def _write(self, name: str, made: KeyAndCertificate) -> tuple[str, str]:
        """Replace both files, the key first."""
        for suffix, contents in ((".key", made.key), (".pem", made.certificate)):
            part = self.directory / f"{name}{suffix}.part"
            part.write_bytes(contents)
            part.replace(self.directory / f"{name}{suffix}")
        return str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")


def settings_of(listener: ListenerTls) -> dict[str, object]:
    """The node's settings for listeners with these files, each with a protocol that has TLS."""
    return {
        "ssl.certificate.file": listener.certificate_file,
        "ssl.key.file": listener.key_file,
        "ssl.ca.file": listener.ca_file,
        "ssl.client.auth": "required" if listener.requires_certificate else "none",
    }


def _now() -> dt.datetime:
    return dt.datetime.fromtimestamp(MachineClock().wall_ms() / 1000, dt.UTC)
