"""Why a connection to a node failed, found by one plain TLS handshake: gRPC does not report it.

Source: the verify codes of OpenSSL (X509_verify_cert_error_string(3)) and the alerts of RFC 8446, section 6.2.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import ssl
from contextlib import suppress
from typing import Final

from tidelog.clock import MachineClock
from tidelog.errors import (
    CertificateExpired,
    CertificateNameMismatch,
    ClientCertificateRejected,
    ClientCertificateRequired,
    ConnectionFailed,
    InvalidConfig,
    TlsHandshakeFailed,
    TlsNotSpoken,
    TlsRequired,
    UnknownCertificateAuthority,
)
from tidelog.security.tls_files import Tls, own_certificate
from tidelog.types import Endpoint

TIMEOUT_S: Final = 2.0
"""Limit of the connection, of the handshake and of the wait for what the node says after it."""

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_WRONG_NAME: Final = {62, 64}
_UNKNOWN_CA: Final = {2, 18, 19, 20, 21}

_NO_TLS: Final = re.compile("WRONG_VERSION_NUMBER|RECORD_LAYER|PACKET_LENGTH|UNEXPECTED_MESSAGE|HTTP|BAD_RECORD_TYPE")
_ALERT: Final = re.compile("ALERT")
_REQUIRED: Final = re.compile("ALERT_CERTIFICATE_REQUIRED|ALERT_HANDSHAKE_FAILURE")
_REJECTED: Final = re.compile("ALERT_(UNKNOWN_CA|(BAD|UNSUPPORTED)_CERTIFICATE|CERTIFICATE_|ACCESS_DENIED|DECRYPT)")


async def diagnose(to: Endpoint, tls: Tls | None, phase: str) -> ConnectionFailed | None:
    """Connect once and find out why TLS fails.

    tls: as the failed connection used it; None: it was plain text. phase: the call, for the message. Returns the error
    to raise instead; None if TLS is not the reason, or cannot be named (nothing answers, a handshake succeeds).
    """
    where = f"{phase} at {to}"
    try:
        context = _context(tls)
    except OSError:  # the files are being replaced, or are gone: TlsFiles says so
        return None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(to.host, to.port, ssl=context, server_hostname=to.host)
    except ssl.SSLCertVerificationError as error:
        return _of_verification(error, to, where, tls)
    except ssl.SSLError as error:
        return _of_alert(error, where, tls)
    except ConnectionRefusedError:
        return None
    except (ConnectionError, EOFError):
        return _closed(where, tls)
    except (TimeoutError, OSError, ValueError):
        return None
    if tls is None:
        writer.transport.abort()
        return _tls_required(where)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            greeting = await reader.read(1)  # a node begins HTTP/2, or refuses the certificate: TLS 1.3 does so here
    except ssl.SSLError as error:
        return _of_alert(error, where, tls)
    except ConnectionError:
        greeting = b""
    except TimeoutError:
        return None
    finally:
        with suppress(Exception):
            writer.transport.abort()
    if greeting:
        return None
    return _certificate_rejected(where, tls, "the node closed the connection after the handshake")


def _context(tls: Tls | None) -> ssl.SSLContext:
    """The checks of the failed connection; without `tls` none, since only an answer in TLS is of interest."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if tls is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    if tls.ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(tls.ca)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    return context


def _of_verification(
    error: ssl.SSLCertVerificationError, to: Endpoint, where: str, tls: Tls | None
) -> TlsHandshakeFailed:
    said = error.verify_message
    if error.verify_code == _EXPIRED:
        return CertificateExpired(f"{where}: the certificate of the node has expired ({said}). Renew it on the node.")
    if error.verify_code == _NOT_YET_VALID:
        return CertificateExpired(
            f"{where}: the certificate of the node is not valid yet ({said}). Compare the clocks of both machines."
        )
    if error.verify_code in _WRONG_NAME:
        return CertificateNameMismatch(
            f"{where}: the certificate of the node is not for {to.host!r} ({said}). Connect by a name of the "
            "certificate and advertise it (advertised.listeners), or issue a certificate with this name."
        )
    if error.verify_code in _UNKNOWN_CA:
        trusted = "the default authorities" if tls is None or tls.ca is None else tls.ca
        return UnknownCertificateAuthority(
            f"{where}: the certificate of the node is signed by no authority in {trusted} ({said}). Name the file with "
            "the certificate of the authority that signed it."
        )
    return TlsHandshakeFailed(f"{where}: the certificate of the node is not accepted ({said}). Replace it.")


def _of_alert(error: ssl.SSLError, where: str, tls: Tls | None) -> ConnectionFailed | None:
    reason = error.reason or str(error)
    if tls is None:
        return _tls_required(where) if _ALERT.search(reason) else None
    if _REQUIRED.search(reason) and tls.certificate is None:
        return _certificate_required(where)
    if _REJECTED.search(reason) or (_ALERT.search(reason) and tls.certificate is not None):
        return _certificate_rejected(where, tls, reason)
    if _NO_TLS.search(reason) and not _ALERT.search(reason):
        return _not_spoken(where)
    return TlsHandshakeFailed(f"{where}: the TLS handshake failed ({reason}). See the log of the node.")


def _closed(where: str, tls: Tls | None) -> ConnectionFailed | None:
    """The error for a node that closed the connection during the handshake."""
    if tls is None:
        return None
    if tls.certificate is None:
        return TlsHandshakeFailed(
            f"{where}: the node closed the connection during the TLS handshake. It may speak plain text there, or "
            "require a certificate: compare listener.security.protocol.map and ssl.client.auth of the node."
        )
    return _certificate_rejected(where, tls, "the node closed the connection")


def _tls_required(where: str) -> TlsRequired:
    return TlsRequired(
        f"{where}: the node speaks TLS at this port, and this side sent plain text. Configure TLS (the CA file at "
        "least), or use the address of a plain text listener."
    )


def _not_spoken(where: str) -> TlsNotSpoken:
    return TlsNotSpoken(
        f"{where}: the node speaks plain text at this port, and this side began TLS. Use the address of a TLS "
        "listener, or connect without TLS."
    )


def _certificate_required(where: str) -> ClientCertificateRequired:
    return ClientCertificateRequired(
        f"{where}: the node requires a certificate of the client. Name a certificate and its key that an authority of "
        "the node has signed."
    )


def _certificate_rejected(where: str, tls: Tls, reason: str) -> ConnectionFailed:
    if tls.certificate is None:
        return _certificate_required(where)
    expired = _own_expiry(tls)
    if expired is not None:
        return ClientCertificateRejected(
            f"{where}: the node does not accept the certificate {tls.certificate} ({reason}): your certificate expired "
            f"on {expired:%Y-%m-%d %H:%M:%S} UTC. Renew it."
        )
    return ClientCertificateRejected(
        f"{where}: the node does not accept the certificate {tls.certificate} ({reason}). It must be valid now and "
        "signed by an authority in ssl.ca.file of the node."
    )


def _own_expiry(tls: Tls) -> dt.datetime | None:
    """When the own certificate expired; None if it has not, or if that cannot be read."""
    try:
        from tidelog.security.certificates import validity_of  # a client may be installed without `cryptography`

        found = validity_of(own_certificate(tls))
    except (ImportError, InvalidConfig):
        return None
    is_past = found is not None and found.end.timestamp() * 1_000 <= MachineClock().wall_ms()
    return found.end if found is not None and is_past else None
