"""Kafka's BrokerTopicMetrics: what the producers and consumers of a topic bring and take."""

from __future__ import annotations

from node.runtime.topic_meter import TopicMeters
from tests.node.led_partitions import led, of
from tests.node.wires import Cluster, batch
from tidelog.errors import NotLeaderOrFollower, OffsetOutOfRange, RecordTooLarge, UnsupportedForMessageFormat
from tidelog.records import build_batch


def figures(cluster: Cluster, number: int) -> dict[str, int]:
    """What the meter of topic `t` has counted on a node, without zeros."""
    [(name, meter)] = cluster.manager(number).topics
    assert name == "t"
    counted = {each: getattr(meter, each) for each in meter.__slots__}
    return {each: count for each, count in counted.items() if count}


def test_a_leader_counts_produced_and_consumed_records_apart_from_replication() -> None:
    with led(max_message_bytes="1000") as cluster:
        good, large = batch(b"a"), batch(b"x" * 2_000)
        answers = cluster.produce(1, good, large, good)
        assert [a.error.code for a in answers] == [0, RecordTooLarge.code, 0]
        cluster.run(1)
        assert cluster.log(2).log_end_offset == 2
        read = cluster.fetch(1, 0)
        assert cluster.fetch(1, 7).error.code == OffsetOutOfRange.code
        assert [a.error.code for a in cluster.produce(2, good)] == [NotLeaderOrFollower.code]
        assert figures(cluster, 1) == {
            "replicas": 1,
            "bytes_in": 2 * len(good),
            "messages_in": 2,
            "bytes_out": len(read.records),
            "replication_bytes_out": 2 * 2 * len(good),
            "bytes_rejected": len(large),
            "failed_produces": 1,
            "failed_fetches": 1,
        }
        follower = {"replicas": 1, "replication_bytes_in": 2 * len(good)}
        assert figures(cluster, 2) == follower | {"failed_produces": 1}
        assert figures(cluster, 3) == follower


def test_conversions_are_records_whose_format_changed() -> None:
    with led(message_format="v1") as cluster:
        cluster.produce(1, build_batch(of(b"a", b"b", b"c")))
        [(_, meter)] = cluster.manager(1).topics
        assert (meter.conversions, meter.messages_in) == (3, 3)
        assert meter.bytes_in == cluster.log(1).size, "as stored"
        with_headers = [of(b"a")[0]._replace(headers=(("h", b"1"),))]
        [answer] = cluster.produce(1, build_batch(with_headers))
        assert answer.error.code == UnsupportedForMessageFormat.code
        assert (meter.conversions, meter.failed_produces, meter.bytes_rejected) == (3, 1, 0)


def test_a_topics_meter_is_removed_with_its_last_replica() -> None:
    topics = TopicMeters()
    first = topics.add_replica("t")
    assert topics.add_replica("t") is first
    topics.remove_replica("t")
    assert list(topics) == [("t", first)]
    topics.remove_replica("t")
    assert list(topics) == []
    assert topics.add_replica("t") is not first
