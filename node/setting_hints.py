"""What to write instead of a setting that does not exist, of Kafka or misspelt, or of one that has no effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_PEM: Final = "keys and certificates are PEM files: "
_OF_KAFKA: Final = {
    "ssl.keystore.location": f"{_PEM}ssl.certificate.file and ssl.key.file",
    "ssl.keystore.certificate.chain": f"{_PEM}ssl.certificate.file",
    "ssl.keystore.key": f"{_PEM}ssl.key.file",
    "ssl.keystore.password": f"{_PEM}ssl.certificate.file, and ssl.key.file without a password",
    "ssl.keystore.type": f"{_PEM}ssl.certificate.file and ssl.key.file",
    "ssl.key.password": f"{_PEM}ssl.key.file, without a password",
    "ssl.truststore.location": f"{_PEM}ssl.ca.file",
    "ssl.truststore.certificates": f"{_PEM}ssl.ca.file",
    "ssl.truststore.password": f"{_PEM}ssl.ca.file, without a password",
    "ssl.truststore.type": f"{_PEM}ssl.ca.file",
    "cordoned.log.dirs": "it is set while the node runs: `tidelog node cordon N --log-dir PATH`, or Kafka's tools",
}
"""Kafka's settings that have another name or place here."""

_PACKAGES: Final = ("org.apache.kafka.metadata.authorizer.", "kafka.security.authorizer.")
"""In which Kafka has had its authorizers."""

NO_EFFECT: Final = (
    'super.users has no effect: no listener has SASL or ssl.client.auth = "required", and authorizer.class.name is not '
    '"StandardAuthorizer", so every caller may do everything, whatever the ACLs say. Correct one of them, or remove '
    "super.users (docs/security.md, Setting it up)"
)


def name_hint(unknown: str, known: Iterable[str]) -> str:
    """What to write instead of this name. unknown, known: keys, or variables of the environment."""
    key = unknown.removeprefix("TIDELOG_").lower().replace("_", ".")
    for ours, hint in _OF_KAFKA.items():
        if key == ours or key.endswith(f".{ours}"):
            return hint
    from difflib import get_close_matches  # imported here only: it takes 0.1 MiB

    near = get_close_matches(unknown, known, n=3)
    return f"similar: {', '.join(near)}" if near else "docs/configuration.md lists all"


def value_hint(value: object) -> str:
    """What completes the error of this value; empty if there is nothing to add."""
    if isinstance(value, str) and value.startswith(_PACKAGES):
        return "; write StandardAuthorizer, without the package"
    return ""
