"""librdkafka's tests that need a broker: producers, order, codecs, idempotence, transactions, groups of both protocols,
offsets, administration, headers, aborted fetches."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.kafka_tools import LIBS, java_command
from tests.kafka_suites.suite import BUILT, Effort, Nodes, Outcome, Suite, Verdict

PROGRAMS: Final = BUILT / "librdkafka" / "tests"
KAFKA_VERSION: Final = "4.1.0"
"""The tests choose by it what they expect of a broker."""
AT_ONCE: Final = 4
_VERDICTS: Final = {"PASSED": Verdict.PASSED, "SKIPPED": Verdict.SKIPPED}
_SECONDS: Final = 1_800
SETTINGS: Final = {"authorizer.class.name": "StandardAuthorizer", "allow.everyone.if.no.acl.found": True}
"""Some tests deny the use of a topic, and expect that all others are free."""
KNOWN: Final = {
    "0081_admin": "it sets sasl.kerberos.min.time.before.relogin of a running node: docs/kafka.md, What differs"
}
TOOLS: Final = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
"""The shell tools of Kafka that tests call, by the classes that they start."""


def _missing() -> str:
    if not os.environ.get(LIBS):
        return "Kafka's jars are not fetched: `make kafka-suites` fetches them, with Maven"
    if not (PROGRAMS / "test-runner").exists():
        return "it is not built: `make kafka-suites` builds it, with npm and gcc"
    return ""


def _make_tools(kafka: Path) -> None:
    """Make what the tests use of Kafka's distribution."""
    tools = kafka / "bin"
    tools.mkdir(parents=True)
    for name, main in TOOLS.items():
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(java_command(main))} "$@"\n')
        script.chmod(0o755)


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    configuration, report, log = home / "test.conf", home / "report.json", home / "librdkafka.log"
    _make_tools(home / "kafka")
    configuration.write_text(f"metadata.broker.list={cluster.kafka_bootstrap}\ntest.topic.random=true\n")
    with log.open("wb") as output:
        done = subprocess.run(
            # Without tests of librdkafka alone (-L), in their quick form (-Q), on sockets as they are (-E).
            ["./test-runner", "-L", "-Q", "-E", f"-p{AT_ONCE}"],
            cwd=PROGRAMS,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": f"{PROGRAMS.parent / 'src'}:{PROGRAMS.parent / 'src-cpp'}",
                "RDKAFKA_TEST_CONF": str(configuration),
                "TEST_KAFKA_VERSION": KAFKA_VERSION,
                "TEST_REPORT": str(report),
                "KAFKA_PATH": str(home / "kafka"),
                "BROKERS": cluster.kafka_bootstrap,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=_SECONDS,
            check=False,
        )
    if not report.exists():
        yield Outcome("librdkafka", Verdict.FAILED, 0, f"exit code {done.returncode} without a report, see {log}")
        return
    for name, found in json.loads(report.read_text())["tests"].items():
        if name != "<MAIN>" and found["state"] != "DNS":
            yield Outcome(name, _VERDICTS.get(found["state"], Verdict.FAILED), found["duration"], found["extra"])


LIBRDKAFKA: Final = Suite("librdkafka", _missing, _run, known=KNOWN, settings=SETTINGS)
