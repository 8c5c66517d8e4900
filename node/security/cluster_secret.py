"""The secret of a cluster: nodes without certificates authenticate with it among themselves, as the user `cluster`.

It is the password of a SCRAM handshake, so that both sides prove that they know it, and none sends it. The salt is a
constant, because a secret is random and not chosen: the keys need not differ between clusters that have different ones.
Nodes always use the same mechanism, whatever `sasl.enabled.mechanisms` is: during a rolling restart it differs.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from replication.controller.scram_users import CLUSTER_USER
from tidelog.errors import InvalidConfig
from tidelog.security.sasl_user import Sasl, first_line
from tidelog.security.saslprep import saslprep
from tidelog.security.scram import ITERATIONS_MIN, ScramCredential, credential_of
from tidelog.types import ScramMechanism

SECRET_CHARACTERS_MIN: Final = 32
DISTINCT_CHARACTERS_MIN: Final = 8
"""Of 32 random hexadecimal digits, fewer are different once in 28 million times."""
NODE_MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
_SALT: Final = b"tidelog: cluster"
_MAKE_ONE: Final = "`openssl rand -hex 32 > FILE; chmod 600 FILE`, the same on every node"


def node_user(secret_file: str) -> Sasl:
    """The user that a node is at the other nodes. Raises InvalidConfig if the file cannot be read, or the secret is too
    short, not random, or has characters that no password may have."""
    try:
        secret = saslprep(first_line(secret_file, "secret"))
    except InvalidConfig as error:
        if _may_be_secret(secret_file):
            raise InvalidConfig(
                "cluster.secret.file: there is no such file, and the value (not shown) looks like a secret. The "
                f"setting names a file, whose first line is the secret: {_MAKE_ONE}"
            ) from None
        raise InvalidConfig(f"cluster.secret.file: {error.message}. To make one: {_MAKE_ONE}") from None
    except ValueError as error:
        raise InvalidConfig(
            f"cluster.secret.file: the secret in {secret_file} {error}; use random letters and digits"
        ) from None
    if len(secret) < SECRET_CHARACTERS_MIN:
        raise InvalidConfig(
            f"cluster.secret.file: the secret in {secret_file} has {len(secret)} characters; use at least "
            f"{SECRET_CHARACTERS_MIN} random ones, for example of `openssl rand -hex 32`"
        )
    if len(set(secret)) < DISTINCT_CHARACTERS_MIN:
        raise InvalidConfig(
            f"cluster.secret.file: the secret in {secret_file} repeats {len(set(secret))} different characters, so it "
            f"is not random. To make one: {_MAKE_ONE}"
        )
    return Sasl(CLUSTER_USER, secret, mechanism=NODE_MECHANISM.mechanism_name)


def _may_be_secret(value: str) -> bool:
    """Whether the value of the setting may be a secret instead of a path, in hexadecimal or Base64: it is not shown."""
    is_path = "." in value or ("/" in value and re.search("[+=]", value) is None)
    return len(value) >= SECRET_CHARACTERS_MIN and not is_path


def cluster_credentials(secret: str) -> dict[ScramMechanism, ScramCredential]:
    """What a node checks the proofs of other nodes against. Raises UnacceptableCredential."""
    return {each: credential_of(each, secret, _SALT, ITERATIONS_MIN) for each in ScramMechanism}


def read_by_all(files: Iterable[str]) -> list[str]:
    """The files with secrets that every user of this machine may read, each once. A group may read them: Kubernetes
    gives mounted secrets to the group of the process (fsGroup)."""
    return [file for file in dict.fromkeys(files) if file and _is_open(file)]


def _is_open(file: str) -> bool:
    try:
        return bool(Path(file).stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False  # the caller that reads the file reports why it cannot be read
