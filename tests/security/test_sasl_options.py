"""How a user is named: in code, on the command line, in Spark, and which listeners ask for one."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path

import pytest

from node import config
from node.security.sasl_settings import OAuthBearerConfig, SaslConfig
from tests.client.memory_cluster import cluster_in_a_thread
from tidelog import Sasl
from tidelog.cli import main
from tidelog.errors import InvalidConfig
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.types import ScramMechanism, TokenMechanism

NODE = """
"node.id" = 0
"controller.quorum.bootstrap.servers" = ["127.0.0.1:9192"]
"listeners" = ["GRPC://127.0.0.1:9192", "outside://127.0.0.1:9193"]
"""

PROTOCOLS = '"listener.security.protocol.map"'


def parse(*lines: str) -> config.NodeConfig:
    text = "\n".join(lines)
    protocols = "" if PROTOCOLS in text else f"{PROTOCOLS} = ['outside:GRPC']\n"
    return config.parse(NODE + protocols + text, {}, source="node.toml", host_name="here")


def test_a_user_never_shows_its_password_and_reads_a_changed_file(tmp_path: Path) -> None:
    assert "tulip" not in repr(Sasl("alice", "tulip"))
    file = tmp_path / "password"
    file.write_text("tulip\nmore\n")
    alice = Sasl("alice", password_file=str(file))
    assert alice.read_password() == "tulip"
    file.write_text("orchid")
    assert alice.read_password() == "orchid"
    for contents in (b"", b"\n", b"\xff\xfe"):
        file.write_bytes(contents)
        with pytest.raises(InvalidConfig, match="password"):
            alice.read_password()


@pytest.mark.parametrize(
    "arguments",
    [
        {"username": ""},
        {"password": None},
        {"password_file": "/file"},
        {"mechanism": "PLAIN"},
        {"password": b"tulip"},
    ],
)
def test_what_names_no_user_is_refused_without_the_password(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Sasl(**{"username": "alice", "password": "tulip", **arguments})  # type: ignore[arg-type]
    assert "tulip" not in refused.value.message


def test_spark_names_a_user_and_the_file_of_its_password() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}
    assert parse_batch_options(given).query.connection.sasl is None
    named = {**given, "tidelog.sasl.username": "alice", "kafka.sasl.password.file": "/secret"}
    options = parse_batch_options(named)
    assert options.query.connection.sasl == Sasl("alice", password_file="/secret")
    assert pickle.loads(pickle.dumps(options)) == options  # executors get the path
    strong = parse_batch_options({**named, "tidelog.sasl.mechanism": "SCRAM-SHA-256"}).query.connection.sasl
    assert strong is not None
    assert strong.scram is ScramMechanism.SCRAM_SHA_256
    for partial in ({"tidelog.sasl.username": "alice"}, {"tidelog.sasl.password.file": "/secret"}):
        with pytest.raises(InvalidConfig, match="SASL needs both options"):
            parse_batch_options({**given, **partial})


def test_spark_names_the_file_of_a_token() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "tidelog.sasl.token.file": "/token"}
    for named in (given, {**given, "kafka.sasl.mechanism": "OAUTHBEARER", "kafka.security.protocol": "SASL_SSL"}):
        found = parse_batch_options(named).query.connection.sasl
        assert found == Sasl(token_file="/token")
        assert pickle.loads(pickle.dumps(found)) == found
    for more, says in (
        ({"tidelog.sasl.username": "alice"}, "no user name"),
        ({"tidelog.sasl.password.file": "/secret"}, "no user name and no password"),
        ({"tidelog.sasl.mechanism": "SCRAM-SHA-512"}, "has no token"),
        ({"tidelog.security.protocol": "SSL"}, "set SASL_SSL"),
    ):
        with pytest.raises(InvalidConfig, match=says):
            parse_batch_options({**given, **more})


def test_the_command_line_names_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes in memory have no SASL: the answer shows that the command wants to authenticate."""
    file = tmp_path / "password"
    file.write_text("tulip")
    with cluster_in_a_thread() as cluster:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)
        assert main(["topic", "list"]) == 0
        user = ["--sasl-username", "alice"]
        assert main([*user, "--sasl-password-file", str(file), "topic", "list"]) == 1
        assert "Sasl.Authenticate" in capsys.readouterr().err
        assert main([*user, "--sasl-password-file", "/no/such/file", "topic", "list"]) == 1
        assert "/no/such/file cannot be read" in capsys.readouterr().err
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        assert main([*user, "topic", "list"]) == 1
        assert "--sasl-password-file" in capsys.readouterr().err
        assert main(["--sasl-password-file", str(file), "topic", "list"]) == 1
        assert "name the user too" in capsys.readouterr().err
        monkeypatch.setenv("TIDELOG_SASL_USERNAME", "alice")
        monkeypatch.setenv("TIDELOG_SASL_PASSWORD_FILE", str(file))
        monkeypatch.setenv("TIDELOG_SASL_MECHANISM", "PLAIN")
        assert main(["topic", "list"]) == 1
        assert "'PLAIN' is unknown" in capsys.readouterr().err


def test_the_command_line_names_the_file_of_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text("header.claims.signature")
    with cluster_in_a_thread() as cluster:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)
        for arguments, says in (
            (["--sasl-token-file", str(file)], "Sasl.Authenticate"),
            (["--sasl-token-file", "/no/such/file"], "token file /no/such/file cannot be read"),
            (["--sasl-token-file", str(file), "--sasl-username", "alice"], "no user name"),
            (["--sasl-token-file", str(file), "--sasl-mechanism", "SCRAM-SHA-256"], "has no token"),
            (["--sasl-mechanism", "OAUTHBEARER"], "--sasl-token-file"),
        ):
            assert main([*arguments, "topic", "list"]) == 1
            shown = capsys.readouterr().err
            assert says in shown
            assert "signature" not in shown
        monkeypatch.setenv("TIDELOG_SASL_TOKEN_FILE", str(file))
        assert main(["topic", "list"]) == 1
        assert "Sasl.Authenticate" in capsys.readouterr().err


def test_a_node_says_which_listeners_require_sasl() -> None:
    assert parse().sasl == SaslConfig()
    all_may = '"authorizer.class.name" = "none"'
    found = parse(
        f"{PROTOCOLS} = ['outside:GRPC_SASL_PLAINTEXT']", '"sasl.enabled.mechanisms" = ["SCRAM-SHA-512"]', all_may
    )
    assert {each.name: each.protocol.has_sasl for each in found.listeners} == {"GRPC": False, "outside": True}
    assert found.sasl.mechanisms == (ScramMechanism.SCRAM_SHA_512,)
    assert "'outside' requires SASL, and by authorizer.class.name" in found.unrestricted
    of_nodes = f"{PROTOCOLS} = ['GRPC:GRPC_SASL_PLAINTEXT', 'outside:GRPC']"
    secret = '"cluster.secret.file" = "/secret"'
    assert parse(of_nodes, secret, all_may).sasl.secret_file == "/secret"
    for line, says in (
        (of_nodes, "'GRPC' has the protocol GRPC_SASL_PLAINTEXT, and nodes use it"),
        (secret, r"has no effect: nodes use the listener 'GRPC', whose protocol is GRPC\. Give"),
        (
            f'"controller.listener.names" = ["outside"]\n{secret}\n{of_nodes}',
            "'outside' has another protocol than 'GRPC'",
        ),
        (f"{PROTOCOLS} = ['outside:GRPC_SASL_SSL']", "missing for listener 'outside', whose protocol has TLS"),
        ('"sasl.enabled.mechanisms" = ["GSSAPI"]', "'GSSAPI' is not a mechanism"),
        ('"sasl.enabled.mechanisms" = []', "one or more mechanisms"),
    ):
        with pytest.raises(InvalidConfig, match=says):
            parse(line)


OAUTHBEARER = """
"sasl.enabled.mechanisms" = ["SCRAM-SHA-512", "OAUTHBEARER"]
"listener.security.protocol.map" = ["outside:GRPC_SASL_PLAINTEXT"]
"super.users" = ["User:admin"]
"""
TOKENS = {
    "jwks.endpoint.url": '"https://login.example.org/keys"',
    "expected.issuer": '"https://login.example.org"',
    "expected.audience": '["tidelog", "other"]',
}


def with_tokens(*lines: str, **changed: str | None) -> config.NodeConfig:
    """A node with OAUTHBEARER. changed: settings in place of the usual ones (`_` for `.`); None: without it."""
    settings = {**TOKENS, **{key.replace("_", "."): value for key, value in changed.items()}}
    given = [f'"sasl.oauthbearer.{key}" = {value}' for key, value in settings.items() if value is not None]
    return parse(OAUTHBEARER, *given, *lines)


def test_a_node_says_whose_tokens_it_accepts() -> None:
    found = with_tokens(clock_skew_seconds="5", sub_claim_name='"client_id"').sasl
    assert found.mechanisms == (ScramMechanism.SCRAM_SHA_512, TokenMechanism.OAUTHBEARER)
    assert found.oauth == OAuthBearerConfig(
        "https://login.example.org/keys",
        issuer="https://login.example.org",
        audience=("tidelog", "other"),
        sub_claim="client_id",
        clock_skew_s=5,
    )
    for url in ("file:///keys", "file:/keys", "file://localhost/keys", "http://[::1]:8080/keys", "http://localhost/"):
        assert with_tokens(jwks_endpoint_url=f'"{url}"').sasl.oauth.url == url


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"jwks_endpoint_url": None}, "jwks.endpoint.url: missing: sasl.enabled.mechanisms has OAUTHBEARER"),
        ({"expected_issuer": None}, "expected.issuer: missing"),
        ({"expected_audience": None}, "expected.audience: missing"),
        ({"expected_audience": "[]"}, "one or more audiences"),
        ({"sub_claim_name": '""'}, "sub.claim.name: missing"),
        ({"jwks_endpoint_url": '"login.example.org"'}, "is neither a file nor an address"),
        ({"jwks_endpoint_url": '"ftp://login.example.org"'}, "is neither a file nor an address"),
        ({"jwks_endpoint_url": '"https://"'}, "names no host"),
        ({"jwks_endpoint_url": '"https://login.example.org/a b"'}, "characters that a URL must escape"),
        ({"jwks_endpoint_url": '"https://login.example.org:port/"'}, "is not a URL"),
        ({"jwks_endpoint_url": '"https://user:tulip@login.example.org"'}, "has a password"),
        ({"jwks_endpoint_url": '"file:keys"'}, "by its whole path"),
        ({"jwks_endpoint_url": '"file://host/keys"'}, "by its whole path"),
        ({"jwks_endpoint_url": '"http://login.example.org/keys"'}, "can be any user: use https"),
        ({"jwks_endpoint_url": '"file:///keys"', "jwks_endpoint_ca_file": '"/ca"'}, "ca.file: has no effect"),
        ({"jwks_endpoint_retry_backoff_max_ms": "999"}, "is less than"),
        ({"clock_skew_seconds": "-1"}, "from 0 to 3600"),
    ],
)
def test_settings_for_tokens_that_cannot_be_used_are_refused(changed: dict[str, str | None], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        with_tokens(**changed)


def test_settings_for_tokens_without_the_mechanism_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"expected\.issuer: has no effect: add OAUTHBEARER"):
        parse('"sasl.oauthbearer.expected.issuer" = "https://login.example.org"')


def test_tokens_and_keys_in_plain_text_over_a_network_need_consent() -> None:
    exposed = NODE.replace("outside://127.0.0.1", "outside://10.0.0.1")
    given = "".join(f'"sasl.oauthbearer.{key}" = {value}\n' for key, value in TOKENS.items())

    def parse_exposed(more: str = "", url: str = "https:") -> config.NodeConfig:
        text = (
            exposed + OAUTHBEARER + given.replace('"https://login.example.org/keys', f'"{url}//login.example.org/keys')
        )
        return config.parse(text + more, {}, source="node.toml", host_name="here")

    consent = '"allow.insecure" = true\n'
    with pytest.raises(InvalidConfig) as refused:
        parse_exposed()
    assert "takes everyone for a node" in refused.value.message, "the other listener comes first"
    secret = '"cluster.secret.file" = "/secret"\n'
    both = OAUTHBEARER.replace(
        '["outside:GRPC_SASL_PLAINTEXT"]', '["outside:GRPC_SASL_PLAINTEXT", "GRPC:GRPC_SASL_PLAINTEXT"]'
    )
    with pytest.raises(InvalidConfig, match="listener 'outside' is in plain text: give it a protocol with TLS"):
        config.parse(exposed + both + given + secret, {}, source="node.toml", host_name="here")
    assert parse_exposed(consent, "http:").sasl.has_tokens


def test_passwords_in_plain_text_over_a_network_need_consent() -> None:
    """Of PLAIN. With SCRAM nobody on the way learns them."""
    plain = OAUTHBEARER.replace("OAUTHBEARER", "PLAIN")
    assert parse(plain).sasl.has_passwords
    both = plain.replace(
        '["outside:GRPC_SASL_PLAINTEXT"]', '["outside:GRPC_SASL_PLAINTEXT", "GRPC:GRPC_SASL_PLAINTEXT"]'
    )
    exposed = NODE.replace("outside://127.0.0.1", "outside://10.0.0.1") + both + '"cluster.secret.file" = "/secret"\n'
    with pytest.raises(InvalidConfig, match="PLAIN sends passwords as they are, and listener 'outside' is in plain"):
        config.parse(exposed, {}, source="node.toml", host_name="here")
    consent = exposed + '"allow.insecure" = true\n'
    assert config.parse(consent, {}, source="node.toml", host_name="here").sasl.has_passwords
