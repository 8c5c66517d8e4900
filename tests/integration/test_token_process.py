"""A node as a process that accepts tokens of an identity provider: the command line is let in with one from a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.integration.node_process import SaslNode

pytestmark = pytest.mark.integration


def settings(url: str) -> dict[str, object]:
    return {
        "sasl.enabled.mechanisms": ["SCRAM-SHA-512", "OAUTHBEARER"],
        "sasl.oauthbearer.jwks.endpoint.url": f'"{url}"',
        "sasl.oauthbearer.expected.issuer": f'"{ISSUER}"',
        "sasl.oauthbearer.expected.audience": [AUDIENCE],
        "super.users": ["User:cluster", "User:billing"],
    }


def tidelog(node: SaslNode, token: str, *arguments: str, typed: str = "") -> tuple[int, str]:
    """The exit code and the output of a command with this token."""
    file = node.home / "token"
    file.write_text(token)
    ended = subprocess.run(
        [sys.executable, "-m", "tidelog.cli", *arguments],
        env={**node.environment, "TIDELOG_BOOTSTRAP": node.outside, "TIDELOG_SASL_TOKEN_FILE": str(file)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_records_go_through_with_tokens_and_nothing_shows_one(tmp_path: Path) -> None:
    """Several commands, each a process that imports the client."""
    provider = IdentityProvider()
    with provider.serving() as url:
        node = SaslNode(tmp_path, settings(url))
        try:
            good, expired = provider.token("billing"), provider.token("billing", lasts_s=-1)
            assert tidelog(node, good, "topic", "create", "orders")[0] == 0
            assert tidelog(node, good, "produce", "orders", typed="one\n") == (0, "1 record acknowledged\n")
            code, said = tidelog(node, expired, "consume", "orders", "-n", "1")
            assert (code, "the token has expired" in said) == (1, True)
            log = node.log.read_text()
            assert "authentication failed user=billing mechanism=OAUTHBEARER" in log
            assert "read the keys of the identity provider keys=1" in log
            assert not any(token in log + said for token in (good, expired))
            node.process.terminate()
            assert node.process.wait(60) == 0
        finally:
            node.process.kill()
            node.process.wait()


def test_a_node_whose_key_file_is_missing_ends_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as refused:
        SaslNode(tmp_path, settings(f"file://{tmp_path}/none"))
    assert "Write the keys of the identity provider to this file" in str(refused.value)
