"""`python -m tests.kafka_clients`: runs the drivers of Kafka's clients against real nodes, and writes docs/kafka.md.

Three nodes in plain text, a fourth that wants SASL and TLS, and a fifth that wants certificates. Needs the package
clients: a client that cannot be fetched gets a row that says so. Exits 1 if a feature of a client failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.kafka_clients.clients import BUILD, CLIENTS, ROOT, Client, NotToBeHad
from tests.kafka_clients.matrix import FEATURES, Result, Row, outcomes_of, replace_table, table_of
from tidelog import sync

DOCUMENT: Final = ROOT / "docs/kafka.md"
DRIVER_S: Final = 300
USER, PASSWORD = "alice", "tulip"
SECURE: Final = ("scram", "plain", "oauthbearer")
MUTUAL: Final = ("certificate",)
TOKEN_S: Final = 3 * 3_600
"""Longer than all clients take together."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_clients", description=__doc__)
    parser.add_argument("--only", default="", help="clients whose name and version contain this; nothing is written")
    only = parser.parse_args().only
    clients = [each for each in CLIENTS if only in each.title]
    with tempfile.TemporaryDirectory(prefix="tidelog-clients-") as home:
        rows = run_all(clients, Path(home))
    table = table_of(rows)
    print(table)
    if not only:
        DOCUMENT.write_text(replace_table(DOCUMENT.read_text(encoding="utf-8"), table), encoding="utf-8")
    return int(any(row.has_failed for row in rows))


def run_all(clients: list[Client], home: Path) -> list[Row]:
    BUILD.mkdir(parents=True, exist_ok=True)
    authority, provider = Authority(home / "certificates"), IdentityProvider()
    certificate = authority.client(USER)
    by_login = {
        "listener.security.protocol.map": ["KAFKA:SASL_SSL"],
        "sasl.enabled.mechanisms": ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"],
        "sasl.oauthbearer.jwks.endpoint.url": provider.write(home / "keys.json"),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": [AUDIENCE],
        "super.users": ["User:ANONYMOUS", f"User:{USER}"],
        **settings_of(authority.node("secure", requires=False)),
    }
    by_certificate = {
        "listener.security.protocol.map": ["KAFKA:SSL"],
        "super.users": ["User:ANONYMOUS", f"User:CN={USER}"],
        **settings_of(authority.node("mutual")),
    }
    with (
        LocalCluster(home / "plain", kafka=True) as plain,
        LocalCluster(home / "secure", 1, kafka=True, settings=by_login) as secure,
        LocalCluster(home / "mutual", 1, kafka=True, settings=by_certificate) as mutual,
        provider.issuing(USER, lasts_s=TOKEN_S) as token_endpoint,
    ):
        for cluster in (plain, secure, mutual):
            cluster.wait_healthy(60)
        with sync.Admin(secure.bootstrap) as admin:
            admin.set_password(USER, PASSWORD)
        places = {
            "BOOTSTRAP": plain.kafka_bootstrap,
            "SECURE_BOOTSTRAP": secure.kafka_bootstrap,
            "MUTUAL_BOOTSTRAP": mutual.kafka_bootstrap,
            "CA": authority.ca,
            "USERNAME": USER,
            "PASSWORD": PASSWORD,
            "TOKEN": provider.token(USER, lasts_s=TOKEN_S),
            "TOKEN_ENDPOINT": token_endpoint,
            "CERTIFICATE": str(certificate.certificate),
            "KEY": str(certificate.key),
        }
        clusters = dict.fromkeys(FEATURES, plain)
        clusters |= dict.fromkeys(SECURE, secure) | dict.fromkeys(MUTUAL, mutual)
        return [run_client(client, number, clusters, places) for number, client in enumerate(clients)]


def run_client(client: Client, number: int, clusters: Mapping[str, LocalCluster], places: Mapping[str, str]) -> Row:
    """clusters: for each feature the one that it needs."""
    print(f"{client.title}: fetching", file=sys.stderr)
    try:
        command = client.fetch()
    except NotToBeHad as reason:
        print(f"{client.title}: {reason}", file=sys.stderr)
        return Row(client.name, client.version, absent=str(reason))
    prefix = f"client-{number}"
    for feature, cluster in clusters.items():
        with sync.Admin(cluster.bootstrap) as admin:
            admin.create_topic(f"{prefix}-{feature}", replication_factor=len(cluster.nodes))
    given = {f"MATRIX_{name}": value for name, value in {**places, "PREFIX": prefix}.items()}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            timeout=DRIVER_S,
            text=True,
            check=False,
        )
        printed, end = done.stdout, f"the driver ended with {done.returncode}"
    except subprocess.TimeoutExpired as expired:
        printed = expired.stdout.decode() if expired.stdout else ""  # bytes, whatever was asked for
        end = f"not done within {DRIVER_S} s"
    row = Row(client.name, client.version, outcomes_of(printed.splitlines(), end))
    for name, outcome in row.outcomes.items():
        if outcome.result is not Result.PASSED:
            print(f"{client.title}: {name} {outcome.result}: {outcome.note}", file=sys.stderr)
    return row


if __name__ == "__main__":
    sys.exit(main())
