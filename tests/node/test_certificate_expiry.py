"""The lines of the log about certificates that expire."""

from __future__ import annotations

import datetime as dt
import logging

import pytest

from node.security.certificate_expiry import DAY_MS, CertificateExpiry
from tests.node.sasl_world import SetTime
from tidelog.security.certificates import create_authority
from tidelog.types import Millis

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Wall(SetTime):
    """Days since the certificate was made."""

    def wall_ms(self) -> Millis:
        return Millis(int(BEGIN.timestamp() * 1_000) + self.now)


@pytest.mark.parametrize(("days", "notice"), [(1_000, 30), (100, 10)])
def test_a_warning_precedes_the_end_and_each_line_is_repeated_once_a_day(
    days: int, notice: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Wall()
    expiry = CertificateExpiry("outside", "node.pem", clock)
    expiry.read(create_authority("test", now=BEGIN, days=days).certificate)
    found = []
    for hour in range((days + 2) * 24):
        clock.now = hour * DAY_MS // 24
        expiry.look()
        found += [(hour // 24, record.levelno) for record in caplog.records]
        caplog.clear()
    warned = [day for day, level in found if level == logging.WARNING]
    assert warned == list(range(days - notice, days))
    assert [day for day, level in found if level == logging.ERROR] == [days, days + 1]


def test_each_reading_of_an_expired_certificate_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    clock = Wall()
    clock.now = 3 * DAY_MS
    expiry = CertificateExpiry("outside", "node.pem", clock)
    for _ in range(2):
        expiry.read(create_authority("test", now=BEGIN, days=2).certificate)
        expiry.look()
    says = "listener 'outside': the certificate in node.pem expired on 2026-01-03 00:00:00 UTC: callers refuse"
    assert [record.message.startswith(says) for record in caplog.records] == [True, True]
    expiry.read(b"no certificate")
    assert expiry.not_after_s is None
