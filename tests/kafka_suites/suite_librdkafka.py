"""librdkafka's tests that need a broker: producers, order, codecs, idempotence, transactions, groups of both protocols,
offsets, administration, headers, aborted fetches."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from node.process.local_cluster import LocalCluster
from tests.kafka_suites.suite import BUILT, Effort, Outcome, Suite, Verdict

PROGRAMS: Final = BUILT / "librdkafka" / "tests"
KAFKA_VERSION: Final = "4.1.0"
"""The tests choose by it what they expect of a broker."""
AT_ONCE: Final = 4
_VERDICTS: Final = {"PASSED": Verdict.PASSED, "SKIPPED": Verdict.SKIPPED}
_SECONDS: Final = 1_800
_SHELL: Final = "it runs Kafka's shell tools, which it looks for in KAFKA_PATH"
KNOWN: Final = {
    **dict.fromkeys(
        (
            "0052_msg_timestamps",
            "0077_compaction",
            "0109_auto_create_topics",
            "0115_producer_auth",
            "0119_consumer_auth",
        ),
        _SHELL,
    ),
    "0081_admin": "CreatePartitions with replicas by hand, which an older controller would ignore: it is refused",
}


def _missing() -> str:
    return (
        ""
        if (PROGRAMS / "test-runner").exists()
        else "it is not built: `make kafka-suites` builds it, with npm and gcc"
    )


def _run(cluster: LocalCluster, home: Path, effort: Effort) -> Iterator[Outcome]:
    configuration, report, log = home / "test.conf", home / "report.json", home / "librdkafka.log"
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


LIBRDKAFKA: Final = Suite("librdkafka", _missing, _run, known=KNOWN)
