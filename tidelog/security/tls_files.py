"""The PEM files of one side of TLS connections, and their replacement while the process runs.

Invariant: what is in use was complete when it was read, and the key belongs to the certificate. Files that are replaced
one after the other are not used before they fit together.
Not here: the handshake (gRPC), why one failed (tidelog/security/diagnosis.py).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a client's TLS connections, in PEM form. Raises InvalidConfig if only one of `certificate` and `key`
    is given."""

    ca: str | Path | None = None
    """Certificates of the authorities that may sign the certificates of nodes; None for those that gRPC contains."""
    certificate: str | Path | None = None
    """The client's own certificate with its chain; None without one."""
    key: str | Path | None = None
    """The private key of the certificate, without a password."""

    def __post_init__(self) -> None:
        for name in ("ca", "certificate", "key"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str | Path) and str(value)):
                raise InvalidConfig(f"tls: {name}={value!r} is not a path; name a PEM file")
        if (self.certificate is None) != (self.key is None):
            present, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            raise InvalidConfig(f"tls: {present} is given without {missing}; name both files")


@dataclass(frozen=True, slots=True)
class Pem:
    """The contents of the files of a `Tls`; None for a file that is not named."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None


READS_MAX: Final = 5
"""Attempts to read files that are being replaced."""

_State = tuple[tuple[int, int, int], ...]
"""Inode, time of modification and size of each file."""


class TlsFiles:
    """The contents of a `Tls`, and whether they have changed on disk. Not thread-safe."""

    def __init__(self, tls: Tls) -> None:
        """Read the files. Raises InvalidConfig."""
        self.tls = tls
        self._seen: _State = ()
        self.pem = self._read_whole()

    def refresh(self) -> bool:
        """Read the files again if they have changed. Returns True if `pem` is new.

        Raises InvalidConfig, once for each state of the files, if they cannot be used; `pem` stays as it was.
        """
        if self._state() == self._seen:
            return False
        pem = self._read_whole()
        changed, self.pem = pem != self.pem, pem
        return changed

    def _read_whole(self) -> Pem:
        """The contents of all files in one state: what was replaced meanwhile may not belong together."""
        for _ in range(READS_MAX):
            self._seen = self._state()
            try:
                pem = self._read()
            except InvalidConfig:
                if self._state() == self._seen:
                    raise
            else:
                if self._state() == self._seen:
                    return pem
        raise InvalidConfig(
            f"{', '.join(self._names())}: replaced {READS_MAX} times while they were read. Replace once"
        )

    def _names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in (self.tls.ca, self.tls.certificate, self.tls.key) if name is not None)

    def _state(self) -> _State:
        found = []
        for name in self._names():
            try:
                status = Path(name).stat()
            except (OSError, ValueError):
                found.append((0, 0, 0))  # reading it says why
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _read(self) -> Pem:
        tls = self.tls
        ca = None if tls.ca is None else _contents(tls.ca)
        certificate = None if tls.certificate is None else _contents(tls.certificate)
        key = None if tls.key is None else _contents(tls.key)
        if tls.ca is not None and ca is not None:
            _ensure_certificates(tls.ca, ca)
        if tls.certificate is not None and tls.key is not None and key is not None:
            _ensure_pair(tls.certificate, tls.key, key)
        return Pem(ca, certificate, key)


def own_certificate(tls: Tls) -> bytes:
    """The contents of the file of the own certificate, empty if there is none. Raises InvalidConfig."""
    return b"" if tls.certificate is None else _contents(tls.certificate)


def _contents(name: str | Path) -> bytes:
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidConfig(f"{name}: cannot be read ({reason}). Name a PEM file that this process may read.") from None


def _ensure_certificates(name: str | Path, contents: bytes) -> None:
    try:
        certificates = contents.decode("ascii", "ignore")  # comments between certificates may have other characters
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            f"{name}: contains no certificates in PEM form ({_reason(error)}). Name a file of the authorities'"
            " certificates, each beginning with -----BEGIN CERTIFICATE-----."
        ) from None


def _ensure_pair(certificate: str | Path, key: str | Path, key_contents: bytes) -> None:
    if b"ENCRYPTED" in key_contents:
        raise InvalidConfig(
            f"{key}: the key is encrypted with a password. Write it without one (openssl pkey -in FILE), readable only "
            "by the user of this process."
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfig(
            f"{certificate} and {key} are not a certificate and its key in PEM form ({_reason(error)}). Name the files "
            "of one pair, the chain in the first one."
        ) from None


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
