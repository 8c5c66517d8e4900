"""When the certificate of a listener expires, and the lines of the log that say so before clients do. No input or
output but the log.

Invariants: an expired certificate is an error line each time its file is read; one that expires soon is a warning. Both
are repeated once a day.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.clock import Clock
from tidelog.types import Millis

if TYPE_CHECKING:
    from tidelog.security.certificates import Validity

_log = logging.getLogger("node.tls")

DAY_MS: Final = 86_400_000
NOTICE_MS: Final = 30 * DAY_MS
NOTICE_SHARE: Final = 10
"""A warning precedes the end by `NOTICE_MS`, or by this part of the validity if that is shorter: cert-manager renews a
certificate after two thirds of its validity, so that a warning means that nobody renews it."""


class CertificateExpiry:
    """The expiry of one listener's certificates. Not thread-safe."""

    def __init__(self, listener: str, file: str, clock: Clock) -> None:
        """file: of the certificate, for the lines."""
        self.listener = listener
        self._file, self._clock = file, clock
        self._validity: Validity | None = None
        self._said_at: Millis | None = None

    @property
    def not_after_s(self) -> float | None:
        """The end of the validity, seconds since 1970; None if the certificate cannot be read."""
        return None if self._validity is None else self._validity.end.timestamp()

    def read(self, certificate: bytes) -> None:
        """The certificate, in PEM form, was read from its file."""
        from tidelog.security.certificates import (
            validity_of,
        )  # loads `cryptography`: 7 MiB that a node without TLS saves

        self._validity, self._said_at = validity_of(certificate), None
        self.look()

    def look(self) -> None:
        """Log if the certificate has expired or soon will, unless that was logged in the last day."""
        if self._validity is None:
            return
        end = self._validity.end
        left_ms = int(end.timestamp() * 1_000) - self._clock.wall_ms()
        duration_ms = int((end - self._validity.begin).total_seconds() * 1_000)
        if left_ms > min(NOTICE_MS, duration_ms // NOTICE_SHARE):
            return
        at = self._clock.monotonic_ms()
        if self._said_at is not None and at - self._said_at < DAY_MS:
            return
        self._said_at = at
        if left_ms <= 0:
            _log.error(
                "listener %r: the certificate in %s expired on %s: callers refuse the connection. Replace the file",
                self.listener,
                self._file,
                f"{end:%Y-%m-%d %H:%M:%S} UTC",
            )
        else:
            _log.warning(
                "listener %r: the certificate in %s expires on %s, in %s: replace the file before",
                self.listener,
                self._file,
                f"{end:%Y-%m-%d %H:%M:%S} UTC",
                f"{left_ms // DAY_MS} days" if left_ms >= 2 * DAY_MS else f"{left_ms // 3_600_000} hours",
            )
