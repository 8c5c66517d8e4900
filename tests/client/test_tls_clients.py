"""Synchronous clients and the command line over mutual TLS, with the certificates that `tidelog certs create` makes."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from node.listener_settings import ListenerTls
from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread, start, until
from tidelog import Producer, Tls, sync
from tidelog.cli import main
from tidelog.clock import MachineClock
from tidelog.errors import ClientCertificateRequired, InvalidConfig, TlsRequired

NODE = "node=localhost,127.0.0.1"


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    directory = tmp_path / "certs"
    assert main(["certs", "create", str(directory), "--node", NODE, "--client", "alice"]) == 0
    return directory


@pytest.fixture
def cluster(certs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    """Two nodes that require certificates."""
    node, key, ca = (str(certs / name) for name in ("node.pem", "node.key", "ca.pem"))
    tls = ListenerTls(node, key, ca, requires_certificate=True)
    with cluster_in_a_thread(tls) as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        yield made


def options(certs: Path) -> list[str]:
    files = {"--tls-ca": "ca.pem", "--tls-cert": "alice.pem", "--tls-key": "alice.key"}
    return [word for option, name in files.items() for word in (option, str(certs / name))]


def test_synchronous_clients_write_and_read_over_tls(cluster: MemoryCluster, certs: Path) -> None:
    cluster.create("orders")
    tls = Tls(certs / "ca.pem", certs / "alice.pem", certs / "alice.key")
    with sync.Producer(cluster.bootstrap, tls=tls) as producer:
        producer.send("orders", b"a")
    with sync.Consumer(cluster.bootstrap, tls=tls) as consumer:
        consumer.assign(consumer.partitions("orders"))
        assert [record.value for record in consumer.poll(timeout=10)] == [b"a"]


def test_an_administrator_without_a_certificate_learns_what_is_missing(cluster: MemoryCluster, certs: Path) -> None:
    with (
        sync.Admin(cluster.bootstrap, patience_ms=0, tls=Tls(certs / "ca.pem")) as admin,
        pytest.raises(ClientCertificateRequired, match=r"^Admin\.\w+ at \S+, \S+: .* Name a certificate"),
    ):
        admin.describe_cluster()
    with sync.Admin(cluster.bootstrap, patience_ms=0) as admin, pytest.raises(TlsRequired, match="Configure TLS"):
        admin.describe_cluster()


async def test_a_producer_warns_at_the_first_failed_handshake_and_its_call_waits_on(
    cluster: MemoryCluster, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(cluster.bootstrap, tls=Tls(certs / "ca.pem")) as producer:
        sending = start(producer.send("orders", b"a"))
        await until(lambda: caplog.records)
        assert not sending.done()
        sending.cancel()
    (line,) = caplog.records
    assert (line.name, line.levelname) == ("tidelog.client.tls", "WARNING")
    assert "the node requires a certificate of the client. Name a certificate" in line.getMessage()


@pytest.mark.parametrize(("again_s", "lines"), [(60.0, 1), (0.0, 4)])
def test_a_client_warns_of_failed_handshakes_once_a_minute(
    cluster: MemoryCluster,
    again_s: float,
    lines: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.protocol.grpc_transport.WARN_AGAIN_S", again_s)
    with sync.Admin(cluster.bootstrap, patience_ms=0) as admin:
        for _ in range(2):  # asks both nodes
            with pytest.raises(TlsRequired):
                admin.describe_cluster()
    assert len(caplog.records) == lines


@pytest.mark.parametrize("by_environment", [False, True])
def test_commands_connect_with_tls(
    cluster: MemoryCluster,
    certs: Path,
    by_environment: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = options(certs)
    if by_environment:
        for option, value in zip(given[::2], given[1::2], strict=True):
            monkeypatch.setenv(f"TIDELOG_{option[2:].upper().replace('-', '_')}", value)
        given = []
    lines = certs / "lines"
    lines.write_bytes(b"one\ntwo\n")
    assert main([*given, "topic", "create", "orders"]) == 0
    assert main([*given, "produce", "orders", "--input", str(lines)]) == 0
    capfd.readouterr()
    assert main([*given, "consume", "orders", "--max", "2"]) == 0
    assert capfd.readouterr().out == "one\ntwo\n"


def tidelogs(said: str) -> str:
    """The only line that is not one of gRPC."""
    (line,) = [line for line in said.splitlines() if line.startswith("tidelog: ")]
    return line


@pytest.mark.usefixtures("no_lag")
def test_a_command_without_tls_says_what_to_configure(
    cluster: MemoryCluster, certs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*options(certs), "topic", "list"]) == 0
    capfd.readouterr()
    assert main(["topic", "list"]) == 1, "the options of one command are not those of the next"
    assert re.fullmatch(
        r"tidelog: Admin\.\w+ at 127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+: the node speaks TLS at this port, .*"
        r"plain text listener\. The option for it is --tls-ca FILE \(TIDELOG_TLS_CA\)\.",
        tidelogs(capfd.readouterr().err),
    )
    assert main(["--tls-ca", str(certs / "ca.pem"), "topic", "list"]) == 1
    said = tidelogs(capfd.readouterr().err)
    assert said.endswith("--tls-cert FILE and --tls-key FILE (TIDELOG_TLS_CERT, TIDELOG_TLS_KEY).")
    other = certs / "other"
    assert main(["certs", "create", str(other), "--client", "mallory"]) == 0
    capfd.readouterr()
    assert main(["--tls-ca", str(other / "ca.pem"), "topic", "list"]) == 1
    said = tidelogs(capfd.readouterr().err)
    assert said.count("is signed by no authority in") == 1
    assert said.endswith("The option for it is --tls-ca FILE (TIDELOG_TLS_CA).")
    assert main([*options(certs)[:4], "topic", "list"]) == 1
    assert tidelogs(capfd.readouterr().err) == "tidelog: tls: certificate is given without key; name both files"


@pytest.mark.parametrize("wrong", [{"ca": ""}, {"ca": 7}, {"certificate": "a.pem"}, {"key": "a.key"}])
def test_files_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="tls: "):
        Tls(**wrong)


def test_a_client_does_not_start_with_something_else_than_tls() -> None:
    with pytest.raises(TypeError, match=r"tls must be a tidelog\.Tls or None, not bool: True"):
        sync.Admin("127.0.0.1:1", tls=True)  # type: ignore[arg-type]


# --- tidelog certs create ---------------------------------------------------------------------------------------------


def made(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_an_authority_signs_nodes_and_clients(certs: Path) -> None:
    authority = made(certs / "ca.pem")
    for name in ("node", "alice"):
        made(certs / f"{name}.pem").verify_directly_issued_by(authority)
        assert (certs / f"{name}.key").stat().st_mode & 0o777 == 0o600
    assert (certs / "ca.key").stat().st_mode & 0o777 == 0o600
    hosts = made(certs / "node.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(each) for each in hosts.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_second_run_replaces_what_it_names_and_keeps_the_authority(certs: Path) -> None:
    before = {path.name: path.read_bytes() for path in certs.iterdir()}
    assert main(["certs", "create", str(certs), "--client", "alice", "--client", "bob", "--days", "2"]) == 0
    after = {path.name: path.read_bytes() for path in certs.iterdir()}
    assert {name for name in after if before.get(name) != after[name]} == {
        "alice.key",
        "alice.pem",
        "bob.key",
        "bob.pem",
    }
    made(certs / "alice.pem").verify_directly_issued_by(made(certs / "ca.pem"))
    now = dt.datetime.fromtimestamp(MachineClock().wall_ms() / 1000, dt.UTC)
    left = made(certs / "alice.pem").not_valid_after_utc - now
    assert dt.timedelta(days=1) < left < dt.timedelta(days=3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--node", "node"], "--node 'node': write NAME=HOST,HOST"),
        (["--node", "node="], "--node 'node=': write NAME=HOST,HOST"),
        (["--node", "n=ünder"], "'ünder' cannot be the name of a host"),
        (["--client", "../alice"], "'../alice' cannot be the name of a certificate"),
        (["--client", "ca"], "'ca' cannot be the name of a certificate"),
        (["--client", "a" * 65], "use 1 to 64 characters"),
        (["--client", "bob", "--client", "bob"], "'bob' is named twice"),
        (["--node", "a=x", "--node", "a=y"], "'a' is named twice"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(
    certs: Path, arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(certs.iterdir())
    assert main(["certs", "create", str(certs), *arguments]) == 1
    assert words in capfd.readouterr().err
    assert sorted(certs.iterdir()) == before


def test_an_authority_without_its_key_is_reported(certs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (certs / "ca.key").unlink()
    assert main(["certs", "create", str(certs), "--client", "bob"]) == 1
    assert "ca.key: No such file or directory. Name a directory that can be written" in capfd.readouterr().err
    (certs / "ca.key").write_bytes((certs / "alice.key").read_bytes())
    assert main(["certs", "create", str(certs), "--client", "bob"]) == 1
    assert "the key of the authority does not belong to its certificate" in capfd.readouterr().err


def test_without_cryptography_the_command_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.security.certificates", raising=False)
    monkeypatch.delattr("tidelog.security.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["certs", "create", str(tmp_path), "--client", "bob"]) == 1
    assert "pip install 'tidelog[cli]'" in capfd.readouterr().err
