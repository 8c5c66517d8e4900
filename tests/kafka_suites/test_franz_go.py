"""franz-go's tests of groups and transactions in short: `make kafka-suites` runs them with 500,000 records."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.kafka_suites.runner import SETTINGS
from tests.kafka_suites.suite import Effort, Verdict
from tests.kafka_suites.suite_franz_go import FRANZ_GO

RECORDS = 2_000


@pytest.mark.interop
def test_its_groups_and_transactions_copy_each_record_once(tmp_path: Path) -> None:
    """Above 10 s: ten chains of three groups, whose members come and go."""
    if why_not := FRANZ_GO.missing():
        pytest.skip(why_not)
    with LocalCluster(tmp_path / "nodes", kafka=True, settings=SETTINGS) as cluster:
        cluster.wait_healthy(60)
        outcomes = list(FRANZ_GO.run(cluster, tmp_path, Effort(RECORDS)))
    assert len(outcomes) > 1
    assert [each for each in outcomes if each.verdict is not Verdict.PASSED] == []
