"""One finding is open; no other one is left out with it."""

from __future__ import annotations

from tests.chaos.open_findings import without_open_ones
from tests.chaos.verdict import Finding


def test_only_duplicates_of_the_producer_of_librdkafka_are_left_out() -> None:
    lost = Finding("lost", "kafka-producer.0/orders-1/7 is acknowledged at orders-1 offset 9, and is not there")
    ours = Finding("duplicate", "tidelog-producer-0/orders-1/7 is stored again at orders-1 offset 9")
    torn = Finding("torn transaction", "pipeline-0/3 is stored in part")
    theirs = Finding("duplicate", "kafka-producer.0/orders-1/7 is stored again at orders-1 offset 9")
    assert without_open_ones([lost, theirs, ours, torn]) == [lost, ours, torn]
