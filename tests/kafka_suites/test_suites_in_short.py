"""Suites of Kafka's clients in short: `make kafka-suites` runs them with 500,000 records, and librdkafka's too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_suites.runner import outcomes
from tests.kafka_suites.suite import Effort, Suite, Verdict
from tests.kafka_suites.suite_franz_go import FRANZ_GO
from tests.kafka_suites.suite_java import JAVA


@pytest.mark.interop
@pytest.mark.parametrize(
    ("suite", "records"), [pytest.param(FRANZ_GO, 2_000, id="franz-go"), pytest.param(JAVA, 500, id="java")]
)
def test_a_suite_passes(suite: Suite, records: int, tmp_path: Path) -> None:
    """Above 10 s: ten chains of three groups, whose members come and go; sixteen programs in Java."""
    if why_not := suite.missing():
        pytest.skip(why_not)
    found = list(outcomes(suite, tmp_path, Effort(records)))
    assert len(found) > 1
    assert [each for each in found if each.verdict is not Verdict.PASSED] == []
