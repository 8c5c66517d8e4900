"""franz-go's chained groups and transactions: records are copied from topic to topic, and counted at the end.

Range, sticky and cooperative assignors, static members, and both group protocols; consumers come and go meanwhile.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kafka_suites.suite import BUILT, Effort, Nodes, Outcome, Suite, Verdict

PROGRAM: Final = BUILT / "franz-go.test"
_VERDICT: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)")
_VERDICTS: Final = {"PASS": Verdict.PASSED, "FAIL": Verdict.FAILED, "SKIP": Verdict.SKIPPED}
_SECONDS: Final = 1_800


def _missing() -> str:
    return "" if PROGRAM.exists() else "it is not built: `make kafka-suites` builds it, with Go"


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    log = home / "franz-go.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [PROGRAM, "-test.v", "-test.run", "TestGroupETL|TestTxnEtl", "-test.timeout", f"{_SECONDS}s"],
            env={
                **os.environ,
                "KGO_SEEDS": cluster.kafka_bootstrap,
                "KGO_TEST_RF": "3",
                "KGO_TEST_RECORDS": str(effort.records),
                "KGO_LOG_LEVEL": "warn",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    outcomes = [
        Outcome(match[2], _VERDICTS[match[1]], float(match[3]))
        for match in map(_VERDICT.match, log.read_text(errors="replace").splitlines())
        if match
    ]
    yield from outcomes
    if not outcomes or (done.returncode and all(each.verdict is Verdict.PASSED for each in outcomes)):
        yield Outcome("franz-go", Verdict.FAILED, 0, f"exit code {done.returncode}, see {log}")


FRANZ_GO: Final = Suite("franz-go", _missing, _run)
