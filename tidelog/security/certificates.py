"""A certificate authority for tests and small installations, and certificates that it signs.

Larger installations have an authority already (cert-manager, Vault, step-ca): nodes and clients only need PEM files.
Keys are ECDSA on P-256, as RFC 9325 (section 4.5) recommends.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidelog.errors import InvalidConfig

_CLOCK_SKEW: Final = dt.timedelta(minutes=5)
"""Certificates are valid from a little earlier: clocks of other machines may be behind."""


@dataclass(frozen=True, slots=True)
class KeyAndCertificate:
    """A private key and its certificate, in PEM form. The key has no password."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Validity:
    """From when until when a certificate is valid; both times are UTC."""

    begin: dt.datetime
    end: dt.datetime


def validity_of(pem: bytes) -> Validity | None:
    """The validity of the first certificate of a file in PEM form; None if it cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except ValueError:
        return None


def create_authority(name: str, *, now: dt.datetime, days: int) -> KeyAndCertificate:
    """A new authority, which signs itself. now: with a time zone. Raises InvalidConfig for an unusable name."""
    return _create(name, (), None, now, days)


def create_node(
    authority: KeyAndCertificate, name: str, hosts: Sequence[str], *, now: dt.datetime, days: int
) -> KeyAndCertificate:
    """A certificate for a node: as server at `hosts` (names and IP addresses), and as client of other nodes.

    Raises InvalidConfig without hosts, for a name that cannot be used, and if the authority cannot be read.
    """
    if not hosts:
        raise InvalidConfig(f"node {name!r} has no host: name the hosts and addresses at which others connect to it")
    return _create(name, hosts, authority, now, days)


def create_client(authority: KeyAndCertificate, name: str, *, now: dt.datetime, days: int) -> KeyAndCertificate:
    """A certificate for a client. Its principal is `User:CN=NAME`. Raises InvalidConfig as `create_node`."""
    return _create(name, (), authority, now, days)


def _create(
    name: str, hosts: Sequence[str], authority: KeyAndCertificate | None, now: dt.datetime, days: int
) -> KeyAndCertificate:
    """hosts: of a server; empty for clients. authority: None: the certificate is of an authority itself."""
    is_authority = authority is None
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    issuer, signer = (subject, key) if authority is None else _signer(authority)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not is_authority:
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return KeyAndCertificate(
        builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _name(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise InvalidConfig(f"{name!r} cannot be the name of a certificate ({error}); use 1 to 64 characters") from None


def _signer(authority: KeyAndCertificate) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    try:
        key = serialization.load_pem_private_key(authority.key, None)
        certificate = x509.load_pem_x509_certificate(authority.certificate)
    except (ValueError, TypeError) as error:
        raise InvalidConfig(f"the authority cannot be read ({error}): restore its certificate and its key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise InvalidConfig("the key of the authority does not belong to its certificate: restore both files")
    return certificate.subject, key


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidConfig(f"{host!r} cannot be the name of a host in a certificate ({error})") from None
