"""Principals of certificates: Kafka's mapping rules, and names as RFC 2253 writes them.

The first table is that of Kafka's SslPrincipalMapperTest.
"""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from node.security.principals import CertificatePrincipals, Holder, distinguished_name, parse_rules, show_rules

KAFKAS = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_holds(name: str, principal: str) -> None:
    assert CertificatePrincipals(parse_rules(KAFKAS)).named(name) == f"User:{principal}"


def test_without_a_matching_rule_there_is_no_principal() -> None:
    assert CertificatePrincipals(parse_rules("RULE:^CN=(.*?),OU=x$/$1/")).named("CN=a") is None


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L/U/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L/LU",
        "RULE:^CN=([^,ADEFLTU,]+)(.*$)/$3/",
        "RULE:(/x/",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rule|expression|group"):
        parse_rules(text)


def test_a_slash_and_a_dollar_can_be_escaped() -> None:
    (rule,) = parse_rules(r"RULE:^CN=(\w+)\/(\w+)$/$2\/$1\$/")
    assert rule.apply("CN=a/b") == "b/a$"


def test_rules_are_shown_as_they_are_written() -> None:
    rules = parse_rules(KAFKAS)
    assert parse_rules(show_rules(rules)) == rules


def certificate(*parts: tuple[x509.ObjectIdentifier, str], usage: tuple[x509.ObjectIdentifier, ...] = ()) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_subject_is_written_as_rfc_2253_does() -> None:
    """The last part first; commas and the like in values escaped, so that no value can pretend to be another part."""
    pem = certificate(
        (NameOID.COUNTRY_NAME, "US"),
        (NameOID.ORGANIZATION_NAME, "Sun, Inc."),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "ServiceUsers"),
        (NameOID.COMMON_NAME, "Duke,OU=Admins"),
    )
    assert (
        distinguished_name(x509.load_pem_x509_certificate(pem))
        == r"CN=Duke\,OU\=Admins,OU=ServiceUsers,O=Sun\, Inc.,C=US"
    )


@pytest.mark.parametrize(
    ("usage", "is_node"),
    [
        ((), False),
        ((ExtendedKeyUsageOID.CLIENT_AUTH,), False),
        ((ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), False),
        ((ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH), True),
    ],
)
def test_only_a_certificate_for_servers_is_that_of_a_node(
    usage: tuple[x509.ObjectIdentifier, ...], is_node: bool
) -> None:
    pem = certificate((NameOID.COMMON_NAME, "n"), usage=usage)
    assert CertificatePrincipals(parse_rules("DEFAULT")).of(pem) == Holder("User:CN=n", is_node, 1_767_312_000_000)


def test_a_certificate_that_the_library_cannot_read_is_refused_by_a_value_error() -> None:
    """TLS libraries accept a name of the kind ediPartyName (RFC 5280, section 4.2.1.6)."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    names = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), bytes.fromhex("3007a505a1030c0178"))
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    with pytest.raises(ValueError, match="EDIPartyName"):
        CertificatePrincipals(parse_rules("DEFAULT")).of(made.public_bytes(serialization.Encoding.PEM))


def test_a_certificate_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate((NameOID.COMMON_NAME, "alice"))
    principals = CertificatePrincipals(parse_rules("DEFAULT"))
    first = principals.of(pem)
    monkeypatch.setattr("node.security.principals.distinguished_name", None)
    assert principals.of(pem) is first
