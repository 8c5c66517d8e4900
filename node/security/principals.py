"""Who a certificate belongs to: its principal, `User:` and the name that the mapping rules make of the subject, and
whether its holder is a node.

The rules and their syntax are Kafka's (`ssl.principal.mapping.rules`, KIP-371; `SslPrincipalMapper`). A node is known
by the extended key usage serverAuth (RFC 5280, section 4.2.1.12): an authority that signs for nodes and clients alike
gives it to nodes only.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.values import dataclass

if TYPE_CHECKING:
    from cryptography import x509

USER: Final = "User:"
"""The type of principals, the only one that there is, as in Kafka."""

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP: Final = re.compile(r"\\(.)|\$(\d)")

CERTIFICATES_MAX: Final = 1_000
"""Limit of the certificates whose principals are kept, so that a call does not parse its certificate again."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule."""

    pattern: re.Pattern[str] | None = None
    """Must match the whole distinguished name; None: `DEFAULT`."""
    replacement: str = ""
    """With `$1` for groups."""
    case: str = ""
    """`L` or `U` for a name in lower or upper case."""

    def apply(self, name: str) -> str | None:
        """The name that the rule makes of a distinguished name; None if it does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        made = _GROUP.sub(lambda each: each[1] or found[int(each[2])] or "", self.replacement)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules of a text, separated by commas: `DEFAULT`, or `RULE:PATTERN/REPLACEMENT/` with an optional `L` or `U`.
    Raises ValueError that says which part is no rule."""
    rules, at = [], 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ValueError(f"{text[at:].strip()!r} is not a rule; write DEFAULT or RULE:PATTERN/REPLACEMENT/[LU]")
        at = found.end()
        if found[1]:
            rules.append(MappingRule())
            continue
        try:
            pattern = re.compile(found[2])
        except re.error as error:
            raise ValueError(f"{found[2]!r} is not a regular expression ({error})") from None
        groups = [int(each[2]) for each in _GROUP.finditer(found[3]) if each[2]]
        if max(groups, default=0) > pattern.groups:
            raise ValueError(f"{found[3]!r} names group ${max(groups)}, and {found[2]!r} has {pattern.groups}")
        rules.append(MappingRule(pattern, found[3], found[4]))
    return tuple(rules)


def show_rules(rules: Sequence[MappingRule]) -> str:
    """The text of rules, as `parse_rules` reads it."""
    return ",".join(
        "DEFAULT" if each.pattern is None else f"RULE:{each.pattern.pattern}/{each.replacement}/{each.case}"
        for each in rules
    )


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a certificate."""

    principal: str | None
    """None if no rule matches its name; `User:` if that is empty."""
    is_node: bool
    """True if the certificate is for servers."""
    expires_ms: int
    """The end of its validity, milliseconds since 1970."""


class CertificatePrincipals:
    """The holders of certificates by the rules of one listener."""

    def __init__(self, rules: Sequence[MappingRule]) -> None:
        self._rules = tuple(rules)
        self._known: OrderedDict[bytes, Holder] = OrderedDict()

    def of(self, pem: bytes) -> Holder:
        """The holder of a certificate that gRPC has verified.

        pem: the certificate. Raises ValueError if it cannot be read.
        """
        known = self._known.get(pem)
        if known is not None:
            self._known.move_to_end(pem)
            return known
        from cryptography import x509  # 7 MiB that a node without TLS saves

        certificate = x509.load_pem_x509_certificate(pem)
        principal = self.named(distinguished_name(certificate))
        expires_ms = int(certificate.not_valid_after_utc.timestamp() * 1000)
        holder = self._known[pem] = Holder(principal, is_for_servers(certificate), expires_ms)
        if len(self._known) > CERTIFICATES_MAX:
            self._known.popitem(last=False)
        return holder

    def named(self, name: str) -> str | None:
        """The principal of a distinguished name; None if no rule matches."""
        for rule in self._rules:
            made = rule.apply(name)
            if made is not None:
                return f"{USER}{made}"
        return None


def distinguished_name(certificate: x509.Certificate) -> str:
    """The subject of a certificate as RFC 2253 writes it, the last part first: `CN=alice,OU=billing,O=Example`.

    Attributes that the RFC does not name have their object identifier, with the value as text. As in Java, and so in
    Kafka, `=` is escaped too: no value can look like two parts to a rule.
    """
    return ",".join(
        "+".join(f"{part.rfc4514_attribute_name}={_escaped(part.value)}" for part in parts)
        for parts in reversed(certificate.subject.rdns)
    )


def is_for_servers(certificate: x509.Certificate) -> bool:
    """Whether the extended key usage of a certificate names serverAuth. Raises ValueError."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:  # TLS libraries may accept these
        raise ValueError(str(error)) from None
    return ExtendedKeyUsageOID.SERVER_AUTH in usage


def _escaped(value: str | bytes) -> str:
    if isinstance(value, bytes):
        return f"#{value.hex()}"
    escaped = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", value).replace("\0", r"\00")
    if escaped.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
