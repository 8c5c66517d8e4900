"""The `tidelog` command against a cluster in memory: input, output and exit codes."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog import __version__
from tidelog.cli import main, produce_command, record_input
from tidelog.client.fetch_stream import FetchStream
from tidelog.client.produce_stream import ProduceStream
from tidelog.errors import (
    ElectionNotNeeded,
    InvalidConfig,
    InvalidRecord,
    LeadershipLost,
    PreferredLeaderNotAvailable,
)
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import admin_pb2, common_pb2


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        yield made


def test_topics_from_creation_to_deletion(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("topic", "create", "orders", "-p", "3", "-c", "durability=page-cache") == 0
    assert "topic 'orders' created" in tidelog.err
    assert tidelog("topic", "create", "orders") == 1
    assert tidelog.err == "tidelog: topic 'orders' exists: choose another name\n"
    assert tidelog("topic", "list", "--json") == 0
    assert [topic["name"] for topic in tidelog.json] == ["orders"]
    assert tidelog("topic", "list") == 0
    assert b"orders" in tidelog.out
    assert tidelog("topic", "describe", "orders", "--json") == 0
    assert tidelog.json["configs"] == {"durability": "page-cache"}
    assert [partition["leader"] for partition in tidelog.json["partitions"]] == [0, 1, 0]
    assert tidelog("topic", "describe", "orders") == 0
    assert b"durability" in tidelog.out
    assert tidelog("topic", "create", "invoices") == 0
    assert [(each.partitions, each.replication_factor) for each in cluster.created] == [(3, -1), (-1, -1)]
    assert tidelog("topic", "delete", "orders", "--json") == 0
    assert tidelog("topic", "describe", "orders") == 1
    assert "there is no topic 'orders'" in tidelog.err


def test_records_are_deleted_after_confirmation(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders", 2)
    for index in ("0", "1"):
        assert tidelog("produce", "orders", "-p", index, typed=b"a\nb\nc\n") == 0
    for typed in (b"n\n", b""):
        assert tidelog("topic", "delete-records", "orders", "-o", "0=2", typed=typed) == 1
        assert "nothing was changed" in tidelog.err
    assert tidelog("topic", "delete-records", "orders", "--all", "--json") == 1
    assert tidelog.json["deleted"] is False
    assert [(each["start"], each["below"]) for each in tidelog.json["partitions"]] == [(0, 3), (0, 3)]
    assert all(each.start == 0 for each in cluster.topics["orders"].partitions)
    assert tidelog("topic", "delete-records", "orders", "-o", "0=2", typed=b"y\n") == 0
    assert "orders-0 starts at offset 2" in tidelog.err
    assert tidelog("topic", "delete-records", "orders", "--before", "2020-01-01", "-p", "1", "--yes", "--json") == 0
    assert [each["log_start"] for each in tidelog.json["partitions"]] == [0]
    assert tidelog("topic", "delete-records", "orders", "-o", "1=latest", "--yes", "--json") == 0
    assert [each["log_start"] for each in tidelog.json["partitions"]] == [3]
    assert tidelog("topic", "delete-records", "orders", "-o", "0=9", "--yes") == 1
    assert "orders-0: the log ends at 3" in tidelog.err
    assert tidelog("topic", "delete-records", "orders", "-o", "0=9", "-o", "1=3", "--yes", "--json") == 1
    assert tidelog.json["deleted"] is False
    refused, done = tidelog.json["partitions"]
    assert (refused["partition"], refused["error"]) == ({"topic": "orders", "partition": 0}, "OffsetOutOfRange")
    assert (done["partition"], done["log_start"]) == ({"topic": "orders", "partition": 1}, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--all", "--before", "2026-01-01"),
        ("-o", "0=1", "-p", "0"),
        ("-o", "0"),
        ("-o", "0=x"),
        ("-o", "a=1"),
        ("--before", "soon"),
    ],
)
def test_a_deletion_without_a_limit_is_not_sent(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...]
) -> None:
    cluster.create("orders")
    assert tidelog("topic", "delete-records", "orders", *arguments, "--yes") == 2
    assert not any(node.asked for node in cluster.nodes)


LARGE = "9" * 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("consume", "orders", "-p", "0", "--offset", LARGE), f"offset {LARGE} is above the end"),
        (("consume", "orders", "-p", LARGE), f"partition {LARGE}: the topic has"),
        (("consume", "orders", "--max", LARGE), ""),
        (("produce", "orders", "-p", LARGE), f"partition {LARGE} does not exist"),
        (("produce", "orders", "-p", "-1"), "partition -1 does not exist"),
        (("produce", "or/ders"), "the topic name 'or/ders' is not allowed"),
        (("topic", "create", "new", "-p", LARGE), f"partitions={LARGE}"),
        (("topic", "create", "new", "-r", LARGE), f"replication_factor={LARGE}"),
        (("topic", "create", "new", "--replication-factor", LARGE), f"replication_factor={LARGE}"),
        (("topic", "create", "\udcff"), "is not allowed"),
        (("topic", "create", "new", "-c", "key=\udcff"), "cannot be encoded as UTF-8"),
        (("topic", "describe", "or/ders"), "the topic name 'or/ders' is not allowed"),
        (("node", "safe-to-restart", LARGE), f"node_id={LARGE}"),
        (("partition", "elect", f"orders-{LARGE}"), f"partition {LARGE} does not exist"),
        (("partition", "reassign", "orders-0", "-r", LARGE), f"a replica={LARGE}"),
        (("cluster", "remove-voter", LARGE), f"node_id={LARGE}"),
        (("node", "remove", LARGE), f"node_id={LARGE}"),
        (("node", "cordon", LARGE), f"node_id={LARGE}"),
    ],
)
def test_an_invalid_argument_is_reported_in_one_sentence(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...], says: str
) -> None:
    cluster.create("orders")
    code = tidelog(*arguments, typed=b"line\n")
    assert code == (1 if says else 0)
    assert says in tidelog.err
    assert "Traceback" not in tidelog.err
    assert tidelog.err.count("\n") <= 2


def test_a_setting_without_effect_causes_a_warning(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.topic_warnings = ["topic a has min.insync.replicas=3, but a replication factor of 1: it counts as 1"]
    assert tidelog("topic", "create", "a", "--config", "min.insync.replicas=3") == 0
    assert "warning: topic a has min.insync.replicas=3" in tidelog.err
    assert tidelog("topic", "create", "b", "--json") == 0
    assert tidelog.json["warnings"] == cluster.topic_warnings
    altered = admin_pb2.ChangedTopics(topics=[admin_pb2.ChangedTopic(warnings=cluster.topic_warnings)])
    for node in cluster.nodes:
        node.scripted["incremental_alter_configs"] = altered
    assert tidelog("topic", "alter", "a", "--config", "min.insync.replicas=3", "--json") == 0
    assert tidelog.json["warnings"] == cluster.topic_warnings


def test_lines_that_are_produced_are_consumed(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders", 2)
    assert tidelog("produce", "orders", "-k", ":", typed=b"a:1\nb:2\r\na:3\nlast:without an end") == 0
    assert tidelog.err == "4 records acknowledged\n"
    assert tidelog("consume", "orders", "--keys") == 0
    lines = tidelog.out.splitlines()
    assert sorted(lines) == [b"a\t1", b"a\t3", b"b\t2", b"last\twithout an end"]
    assert lines.index(b"a\t1") < lines.index(b"a\t3")
    assert tidelog.err == "4 records\n"


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_quotas_know_a_command_by_the_client_id_that_it_is_given(
    cluster: MemoryCluster, tidelog: Terminal, command: str
) -> None:
    cluster.create("orders", 2)
    assert tidelog(command, "orders", "--client-id", "night-load", typed=b"1\n2\n3\n") == 0
    assert set.union(*(node.client_ids for node in cluster.nodes)) == {"night-load"}
    assert tidelog(command, "orders", "--client-id", "\n") == 1
    assert "client_id='\\n': use at most 255 printable ASCII characters" in tidelog.err


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_command_says_that_a_quota_slows_it_down(
    cluster: MemoryCluster, tidelog: Terminal, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("orders")
    assert tidelog("produce", "orders", typed=b"1\n") == 0
    stream: Any = ProduceStream if command == "produce" else FetchStream
    received = stream._received

    def throttled(self: Any, answer: Any) -> None:
        if command == "consume":
            answer = answer._replace(throttle_time_ms=3)
        else:
            answer.throttle_time_ms = 3
        received(self, answer)

    monkeypatch.setattr(stream, "_received", throttled)
    assert tidelog(command, "orders", typed=b"2\n") == 0
    said, tally = tidelog.err.splitlines()
    assert re.fullmatch(
        r"tidelog: Data\.(Produce|Fetch)Stream: the node at 127\.0\.0\.1:\d+ throttles this client for 3 ms, "
        r"because it exceeds a quota \(`tidelog quota list`\)",
        said,
    )
    assert tally.startswith("1 record")


def test_a_script_gets_json_lines(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    assert tidelog("produce", "orders", "--json", typed=b"text\n\xff\xfe\n") == 0
    counts = {"sent": 2, "acknowledged": 2, "unconfirmed": 0, "unknown": 0, "failed": 0}
    assert tidelog.json == {"topic": "orders", **counts, "failures": []}
    assert tidelog("consume", "orders", "--json") == 0
    first, second = (json.loads(line) for line in tidelog.out.splitlines())
    assert (first["offset"], first["value"], first["key"]) == (0, "text", None)
    assert second["value"] == {"base64": "//4="}


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_sent_line_by_line(cluster: MemoryCluster, tidelog: Terminal, tmp_path: Path, packed: bool) -> None:
    cluster.create("orders")
    content = b"".join(b"line %d\n" % number for number in range(5000))
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert tidelog("produce", "orders", "--input", str(path), "--compression", "lz4") == 0
    assert tidelog("consume", "orders") == 0
    assert tidelog.out == content
    assert tidelog("consume", "orders", "--offset", "4998", "-p", "0") == 0
    assert tidelog.out == b"line 4998\nline 4999\n"
    assert tidelog("consume", "orders", "--max", "2") == 0
    assert tidelog.out == b"line 0\nline 1\n"
    assert tidelog("consume", "orders", "--follow", "--max", "3") == 0
    assert tidelog.out == b"line 0\nline 1\nline 2\n"
    assert tidelog("consume", "orders", "--from", "latest") == 0
    assert tidelog.out == b""
    assert tidelog("consume", "orders", "--from", "2001-01-01T00:00:00Z", "-n", "1") == 0
    assert tidelog.out == b"line 0\n"


def test_produce_fails_if_a_record_was_not_written(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    cluster.nodes[0].on_produce = lambda entry: InvalidRecord("no key")
    assert tidelog("produce", "orders", typed=b"1\n2\n") == 1
    assert tidelog.err.splitlines() == [
        "tidelog: line 1: no key",
        "tidelog: line 2: no key",
        "0 records acknowledged, 2 not written",
    ]
    cluster.nodes[0].on_produce = lambda entry: LeadershipLost("node 0 stopped leading")
    assert tidelog("produce", "orders", "--timeout", "1", typed=b"1\n") == 1
    assert "1 of unknown outcome" in tidelog.err
    assert "it is unknown whether" in tidelog.err


def test_cluster_status_shows_nodes_and_problems(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("cluster", "status", "--json") == 0
    assert (tidelog.json["healthy"], len(tidelog.json["nodes"])) == (True, 2)
    assert tidelog("cluster", "status") == 0
    assert b"controller" in tidelog.out
    assert tidelog.err == "healthy\n"


def test_a_removed_node_may_have_been_a_voter(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.voters = [0, 1]
    assert tidelog("node", "remove", "1") == 0
    assert "node 1 is no longer part of the cluster" in tidelog.err
    assert "it was a voter" in tidelog.err
    assert tidelog("node", "remove", "1", "--json") == 0
    assert tidelog.json == {"removed_node": 1, "removed_voter": False}


def test_a_cordoned_node_is_shown_until_that_ends(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("node", "cordon", "1") == 0
    assert "node 1 is cordoned\n" in tidelog.err
    assert tidelog("node", "cordon", "1") == 0
    assert "node 1 is cordoned already" in tidelog.err
    assert tidelog("cluster", "status") == 0
    assert b"alive, cordoned" in tidelog.out
    assert tidelog("cluster", "status", "--json") == 0
    assert [node["cordoned"] for node in tidelog.json["nodes"]] == [False, True]
    assert tidelog("node", "uncordon", "1", "--json") == 0
    assert tidelog.json == {"uncordoned_node": 1, "log_dirs": [], "changed": True}
    assert tidelog("node", "uncordon", "1") == 0
    assert "node 1 was not cordoned" in tidelog.err
    assert tidelog("cluster", "status") == 0
    assert b"cordoned" not in tidelog.out


def test_a_log_directory_is_not_cordoned_while_an_older_node_would_cordon_all(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    """The nodes of the test are of feature level 1."""
    assert tidelog("node", "cordon", "1", "--log-dir", "/data") == 1
    assert "the cordon of a log directory needs feature level 10" in tidelog.err
    assert "tidelog cluster upgrade" in tidelog.err
    assert not cluster.cordoned


@pytest.mark.usefixtures("no_lag")
def test_the_nodes_are_named_before_the_command_or_after_it(tidelog: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "127.0.0.1:1"
    with cluster_in_a_thread() as made:
        monkeypatch.delenv("TIDELOG_BOOTSTRAP", raising=False)
        assert tidelog("--bootstrap", made.bootstrap, "topic", "list") == 0
        assert tidelog("-b", nowhere, "topic", "list", "-b", made.bootstrap) == 0
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        assert tidelog("-b", "", "topic", "list") == 0, "an unset variable of a shell names no nodes"
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", nowhere)
        assert tidelog("--bootstrap", made.bootstrap, "topic", "list") == 0
        assert tidelog("topic", "list") == 1
        assert nowhere in tidelog.err


def test_a_table_in_a_pipe_has_its_names_in_one_piece(cluster: MemoryCluster, tidelog: Terminal) -> None:
    names = [letter * 240 for letter in "ab"]
    for name in names:
        assert tidelog("topic", "create", name) == 0
    assert tidelog("topic", "list") == 0
    lines = tidelog.out.decode().splitlines()
    assert [[name in line for line in lines].count(True) for name in names] == [1, 1]
    assert max(map(len, lines)) < 400


def scripted(cluster: MemoryCluster, **answers: object) -> None:
    for node in cluster.nodes:
        node.scripted.update(answers)


PLACE = admin_pb2.TopicPartitionId(topic="orders", partition=0)


def test_a_full_disk_and_a_damaged_replica_are_reported_as_unhealthy(cluster: MemoryCluster, tidelog: Terminal) -> None:
    for wrong, what in (
        ({"full_partitions": 1}, "1 partition rejecting writes: the leader's disk is full"),
        ({"damaged_partitions": 2}, "2 partitions with a damaged replica"),
        (
            {"unanswered_nodes": [1, 2]},
            "no report about the disks of node 1, 2: try again, then check the log of that node",
        ),
    ):
        cluster.described = wrong
        assert tidelog("cluster", "status") == 1
        assert what in tidelog.err
        assert tidelog("cluster", "status", "--json") == 1
        assert (tidelog.json["healthy"], tidelog.json["problems"]) == (False, [what])


def test_a_topic_is_altered(cluster: MemoryCluster, tidelog: Terminal) -> None:
    scripted(
        cluster,
        incremental_alter_configs=admin_pb2.ChangedTopics(topics=[admin_pb2.ChangedTopic()]),
        create_partitions=admin_pb2.ChangedTopics(topics=[admin_pb2.ChangedTopic()]),
    )
    assert tidelog("topic", "alter", "orders", "-c", "retention.ms=1", "-d", "segment.bytes", "-p", "4", "--json") == 0
    asked = [request for node in cluster.nodes for request in node.asked]
    [altered] = next(
        request for request in asked if isinstance(request, admin_pb2.IncrementalAlterConfigsRequest)
    ).topics
    changes = altered.changes
    assert [(one.key, one.value, one.HasField("value")) for one in changes] == [
        ("retention.ms", "1", True),
        ("segment.bytes", "", False),
    ]
    grown = [request.topics for request in asked if isinstance(request, admin_pb2.CreatePartitionsRequest)]
    assert [topic.count for [topic] in grown] == [4]
    assert tidelog("topic", "alter", "orders") == 1
    assert "nothing to change" in tidelog.err
    scripted(cluster, incremental_alter_configs=InvalidConfig("durability was fixed"))
    assert tidelog("topic", "alter", "orders", "-c", "durability=page-cache") == 1
    assert tidelog.err == "tidelog: durability was fixed\n"


def test_leaders_are_elected_and_the_loss_is_reported(cluster: MemoryCluster, tidelog: Terminal) -> None:
    done = admin_pb2.PartitionOutcome(partition=PLACE, leader=2, leader_epoch=7, loss="node 1 had more")
    scripted(cluster, elect_leaders=admin_pb2.ElectLeadersResponse(partitions=[done]))
    assert tidelog("partition", "elect", "orders-0", "--unclean", "--yes") == 0
    assert "RECORDS MAY BE LOST: node 1 had more" in tidelog.err
    assert tidelog("partition", "elect", "orders-0", "--json") == 0
    assert tidelog.json[0]["leader"] == 2
    refused = admin_pb2.PartitionOutcome(partition=PLACE, error=to_proto(ElectionNotNeeded("led already")), leader=-1)
    scripted(cluster, elect_leaders=admin_pb2.ElectLeadersResponse(partitions=[refused]))
    assert tidelog("partition", "elect") == 0, "a script can be run again"
    assert tidelog.err == "orders-0: led already\n"
    assert tidelog("partition", "elect", "--json") == 0
    assert tidelog.json[0]["error"] == {"name": "ElectionNotNeeded", "message": "led already"}
    absent = PreferredLeaderNotAvailable("orders-0 cannot be led by node 1")
    refused = admin_pb2.PartitionOutcome(partition=PLACE, error=to_proto(absent), leader=-1)
    scripted(cluster, elect_leaders=admin_pb2.ElectLeadersResponse(partitions=[refused]))
    assert tidelog("partition", "elect") == 1
    assert tidelog.err == "orders-0 cannot be led by node 1\n", "its name is there once"
    assert tidelog("partition", "elect", "--unclean") == 2
    assert "name the partitions" in tidelog.err


def asked_to_elect(cluster: MemoryCluster) -> list[bool]:
    """Return `validate_only` of each requested election."""
    asked = [each for node in cluster.nodes for each in node.asked if isinstance(each, admin_pb2.ElectLeadersRequest)]
    return [each.validate_only for each in asked]


def test_an_unclean_election_shows_the_loss_and_asks_for_confirmation(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    done = admin_pb2.PartitionOutcome(partition=PLACE, leader=2, leader_epoch=7, loss="offsets 4..4 are lost")
    scripted(cluster, elect_leaders=admin_pb2.ElectLeadersResponse(partitions=[done]))
    for typed in (b"n\n", b""):
        assert tidelog("partition", "elect", "orders-0", "--unclean", typed=typed) == 1
        assert "node 2 would lead. offsets 4..4 are lost" in tidelog.err
        assert "nothing was changed" in tidelog.err
    assert tidelog("partition", "elect", "orders-0", "--unclean", "--json") == 1
    assert (tidelog.json[0]["elected"], tidelog.json[0]["loss"]) == (False, "offsets 4..4 are lost")
    assert asked_to_elect(cluster) == [True, True, True]
    assert tidelog("partition", "elect", "orders-0", "--unclean", typed=b"y\n") == 0
    assert tidelog("partition", "elect", "orders-0", "--unclean", "--yes", "--json") == 0
    assert tidelog.json[0]["leader"] == 2
    assert sorted(asked_to_elect(cluster)) == [False, False, True, True, True, True]


def test_replicas_are_reassigned(cluster: MemoryCluster, tidelog: Terminal) -> None:
    begun = admin_pb2.PartitionOutcome(partition=PLACE, leader=0, leader_epoch=1)
    moving = admin_pb2.OngoingReassignment(partition=PLACE, replicas=[1, 2, 0], adding=[2], removing=[0], isr=[0, 1])
    scripted(
        cluster,
        alter_partition_reassignments=admin_pb2.AlterPartitionReassignmentsResponse(partitions=[begun]),
        list_partition_reassignments=admin_pb2.ListPartitionReassignmentsResponse(partitions=[moving]),
    )
    assert tidelog("partition", "reassign", "orders-0", "-r", "1,2") == 0
    asked = [request for node in cluster.nodes for request in node.asked]
    assert [list(request.partitions[0].replicas) for request in asked] == [[1, 2]]
    assert tidelog("partition", "moves", "--json") == 0
    assert tidelog.json[0]["adding"] == [2]
    assert tidelog("partition", "moves") == 0
    assert b"orders-0" in tidelog.out
    assert tidelog("partition", "reassign", "orders-0", "--cancel") == 0
    for wrong in (("orders-0",), ("orders-0", "-r", "1,x"), ("orders-0", "-r", "1", "--cancel"), ("orders", "-r", "1")):
        assert tidelog("partition", "reassign", *wrong) == 2


def test_problems_are_explained(cluster: MemoryCluster, tidelog: Terminal) -> None:
    explanation = admin_pb2.PartitionExplanation(partition=PLACE, causes=["node 1 is gone"], steps=["start node 1"])
    scripted(
        cluster,
        explain_partitions=admin_pb2.ExplainPartitionsResponse(partitions=[explanation]),
        explain_restart=admin_pb2.ExplainRestartResponse(safe=False, reasons=["no other replica could lead orders-0"]),
        update_features=admin_pb2.UpdateFeaturesResponse(level=2),
    )
    assert tidelog("partition", "why-unavailable", "orders-0") == 1
    assert tidelog.err == "orders-0 is unavailable\n  why: node 1 is gone\n  do:  start node 1\n"
    assert tidelog("partition", "why-unavailable", "--json") == 1
    assert tidelog.json[0]["causes"] == ["node 1 is gone"]
    assert tidelog("node", "safe-to-restart", "1") == 1
    assert tidelog.err == "not now: no other replica could lead orders-0\n"
    scripted(
        cluster,
        explain_partitions=admin_pb2.ExplainPartitionsResponse(),
        explain_restart=admin_pb2.ExplainRestartResponse(safe=True),
    )
    assert tidelog("partition", "why-unavailable") == 0
    assert tidelog("node", "safe-to-restart", "1", "--json") == 0
    assert tidelog.json["safe"] is True
    assert tidelog("cluster", "upgrade") == 0
    assert tidelog.err == "the feature level is 2\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("topic", "create", "orders", "-c", "durability"), 1, "KEY=VALUE"),
        (("consume", "orders", "--offset", "3"), 2, "--partition"),
        (("consume", "orders", "--offset", "3", "-p", "0", "--from", "latest"), 2, "leave out one of them"),
        (("consume", "orders", "--offset", "3", "-p", "0", "--from", "earliest"), 2, "leave out one of them"),
        (("consume", "orders", "-p", "9"), 1, "partitions 0 to 0"),
        (("consume", "orders", "-p", "0", "--offset", "-5"), 2, "--last 5"),
        (("consume", "orders", "--from", "yesterday"), 2, "2026-01-31T12:00:00Z"),
        (("consume", "orders", "--offset", "3", "-p", "0"), 1, "above the end 0 of orders-0"),
        (("consume", "nothing"), 1, "there is no topic 'nothing'"),
        (("produce", "nothing"), 1, "there is no topic 'nothing'"),
        (("produce", "orders", "-k", ""), 2, "--key-separator is empty"),
        (("produce", "orders", "-k", ":"), 1, "no key separator"),
        (("produce", "orders", "--acks", "2"), 2, "'2' is not one of 'all'"),
        (("produce", "orders", "-z", "zip"), 2, "'zip' is not one of 'none'"),
        (("produce", "orders", "--on-unknown", "2"), 2, "'2' is not one of 'raise'"),
        (("produce", "orders", "--input", "/nowhere/at/all"), 1, "No such file"),
        (("produce", "orders", "-b", "127.0.0.1:1"), 1, "Is a node running there"),
        (("up", "--port", "70000"), 2, "65326"),
        (("topic", "create"), 2, "Missing argument"),
        (("conjure",), 2, "No such command"),
        (("consume", "orders", "-b", "nonsense"), 1, "host:port"),
        (("topic", "list", "-b", "127.0.0.1:1"), 1, "Is a node running there"),
    ],
)
@pytest.mark.usefixtures("no_lag")
def test_an_error_is_one_sentence(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...], code: int, said: str
) -> None:
    cluster.create("orders")
    assert tidelog(*arguments, typed=b"no separator here\n") == code
    assert said in tidelog.err
    assert "Traceback" not in tidelog.err
    assert tidelog.out == b""


@pytest.mark.usefixtures("no_lag")
def test_a_script_reads_errors_as_json(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """What fails for one of several topics is a document of its own; what ends a command is its only one."""
    cluster.create("orders")
    assert tidelog("topic", "create", "orders", "new", "--json") == 1
    made, failed = [json.loads(line) for line in tidelog.out.splitlines()]
    assert (made["name"], made["created"]) == ("new", True)
    assert (failed["name"], failed["created"], failed["error"]) == ("orders", False, "TopicExists")
    assert tidelog("topic", "describe", "nothing", "--json") == 1
    assert (tidelog.json["error"], tidelog.json["retry"]) == ("UnknownTopicOrPartition", True)
    assert tidelog.json["message"] in tidelog.err
    assert tidelog("--json", "topic", "list", "-b", "nonsense") == 1
    assert tidelog.json["error"] == "InvalidConfig"
    assert tidelog("produce", "nothing", "--json", typed=b"line\n") == 1
    assert (tidelog.json["sent"], tidelog.json["error"]) == (0, "UnknownTopicOrPartition")
    assert tidelog("consume", "nothing", "--json") == 1
    assert tidelog.out == b"", "its lines are records: an error is none"


def test_each_of_several_new_topics_has_its_outcome(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    assert tidelog("topic", "create", "a", "b c", "orders", "d", "a") == 1
    made = [line.partition(", ")[0] for line in tidelog.err.splitlines()]
    assert made[:2] == ["topic 'a' created", "topic 'd' created"]
    assert "topic 'b c' was not created: the topic name 'b c' is not allowed" in tidelog.err
    assert "topic 'orders' was not created: topic 'orders' exists" in tidelog.err
    assert tidelog("topic", "create", "e", "f/g", "--json") == 1
    outcomes = [json.loads(line) for line in tidelog.out.splitlines()]
    assert [(each["name"], each["created"], each.get("error")) for each in outcomes] == [
        ("e", True, None),
        ("f/g", False, "InvalidTopic"),
    ]
    assert tidelog("topic", "create", "h", "i") == 0
    assert tidelog("topic", "delete", "h", "b c", "--json") == 1
    outcomes = [json.loads(line) for line in tidelog.out.splitlines()]
    assert [(each["name"], each["deleted"], each.get("error")) for each in outcomes] == [
        ("h", True, None),
        ("b c", False, "InvalidTopic"),
    ]
    assert sorted(cluster.topics) == ["a", "d", "e", "i", "orders"]


def test_a_lost_voter_is_removed(cluster: MemoryCluster, tidelog: Terminal) -> None:
    assert tidelog("cluster", "remove-voter", "0", "--json") == 0
    assert tidelog.json == {"removed_voter": 0}
    assert 0 not in cluster.voters
    assert tidelog("cluster", "remove-voter", "7") != 0
    assert "node 7 does not vote" in tidelog.err


def test_lines_around_an_invalid_one_are_sent(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    assert tidelog("produce", "orders", "-k", ":", typed=b"a:1\nno separator\nb:2\n") == 1
    assert tidelog.err.splitlines() == [
        "tidelog: line 2: there is no key separator ':': 'no separator'",
        "2 records acknowledged, 1 not written",
    ]


def test_gzip_of_several_members_with_padding_is_one_file(
    cluster: MemoryCluster, tidelog: Terminal, tmp_path: Path
) -> None:
    cluster.create("orders")
    path = tmp_path / "input.gz"
    content = b"one\ntwo\nthree" + b"\n" * 20_000
    path.write_bytes(gzip.compress(content[:6]) + gzip.compress(content[6:]) + b"\0" * 512)
    assert tidelog("produce", "orders", "--input", str(path), "--compression", "lz4") == 0
    assert tidelog("consume", "orders") == 0
    assert tidelog.out == content


@pytest.mark.parametrize("spoil", [lambda packed: packed[:-300], lambda packed: packed[:40] + b"damage" + packed[46:]])
def test_corrupt_gzip_is_reported_as_such_and_not_as_an_interrupt(
    cluster: MemoryCluster, tidelog: Terminal, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    cluster.create("orders")
    path = tmp_path / "input.gz"
    path.write_bytes(spoil(gzip.compress(b"".join(b"line %d\n" % number for number in range(5000)))))
    assert tidelog("produce", "orders", "--input", str(path)) == 1
    assert f"{path} is" in tidelog.err
    assert "gzip" in tidelog.err


def test_a_line_without_an_end_takes_bounded_memory_and_time(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("orders")
    for module in (record_input, produce_command):
        monkeypatch.setattr(module, "LINE_BYTES_MAX", 1000)
    assert tidelog("produce", "orders", typed=b"short\n" + b"x" * 1001) == 1
    assert tidelog.err.splitlines()[1] == "1 record acknowledged, 1 not written"
    assert "line 2: it is longer than 1000 bytes" in tidelog.err


def test_closed_standard_streams_do_not_fail_a_command(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create("orders")
    monkeypatch.setattr(sys, "stdout", None)
    assert tidelog("consume", "orders") == 0
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["produce", "orders"]) == 1


def test_the_version_is_printed(tidelog: Terminal) -> None:
    assert tidelog("--version") == 0
    assert tidelog.out == f"tidelog {__version__}\n".encode()


def test_up_without_the_server_dependencies_names_what_to_install(
    tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_health.v1", None)
    for name in [name for name in sys.modules if name == "node" or name.startswith("node.")]:
        monkeypatch.delitem(sys.modules, name)
    assert tidelog("up") == 1
    assert tidelog.err == "tidelog: nodes and their files need grpc_health.v1: pip install 'tidelog[server]'\n"


def test_a_lost_majority_is_reported_instead_of_stale_state(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders")
    cluster.controller_silence_ms = 7_200
    scripted(cluster, explain_partitions=admin_pb2.ExplainPartitionsResponse())
    advice = "no active controller has been heard for 7 s: a majority of the voters (nodes 0, 1) must run"
    for command in (("cluster", "status"), ("partition", "why-unavailable")):
        assert tidelog(*command) == 1
        assert advice in tidelog.err
        assert "no problems found" not in tidelog.err
    assert tidelog("cluster", "status", "--json") == 1
    assert tidelog.json["healthy"] is False


def test_a_quota_that_is_not_set_is_not_reported_as_removed(cluster: MemoryCluster, tidelog: Terminal) -> None:
    values = [common_pb2.QuotaValue(key="producer_byte_rate", value=1048576)]
    quota = admin_pb2.ClientQuota(entity=common_pb2.QuotaEntity(user="alice"), values=values)
    described = admin_pb2.DescribeClientQuotasResponse(entries=[quota])
    scripted(cluster, alter_client_quotas=admin_pb2.AlterClientQuotasResponse(), describe_client_quotas=described)
    for command, says in (
        ("-u alice", "quotas of user 'alice' removed: producer_byte_rate"),
        ("-u alice producer_byte_rate", "quotas of user 'alice' removed: producer_byte_rate"),
        ("-u alice consumer_byte_rate", "no quota of user 'alice' was removed; not set: consumer_byte_rate"),
        (
            "-u alice producer_byte_rate consumer_byte_rate",
            "quotas of user 'alice' removed: producer_byte_rate; not set: consumer_byte_rate",
        ),
        ("-u bob", "no quota of user 'bob' was removed: none is set"),
    ):
        assert tidelog("quota", "remove", *command.split()) == 0
        assert tidelog.err == f"{says}\n"


def test_quotas_are_set_listed_and_removed(cluster: MemoryCluster, tidelog: Terminal) -> None:
    entity = common_pb2.QuotaEntity(user="alice", client_id="")
    values = [common_pb2.QuotaValue(key="producer_byte_rate", value=1048576)]
    scripted(
        cluster,
        alter_client_quotas=admin_pb2.AlterClientQuotasResponse(),
        describe_client_quotas=admin_pb2.DescribeClientQuotasResponse(
            entries=[admin_pb2.ClientQuota(entity=entity, values=values)]
        ),
    )
    alice = ("--user", "alice", "--default-client-id")
    assert tidelog("quota", "set", "producer_byte_rate=1048576", "request_percentage=12.5", *alice) == 0
    assert tidelog.err == "quotas of user 'alice', default client id set\n"
    assert tidelog("quota", "remove", "request_percentage", *alice, "--json") == 0
    assert tidelog.json["removed"] == []
    asked = [request for node in cluster.nodes for request in node.asked]
    altered = [request for request in asked if isinstance(request, admin_pb2.AlterClientQuotasRequest)]
    assert [request.entries[0].entity for request in altered] == [entity, entity]
    changes = [[(each.key, each.value, each.HasField("value")) for each in one.entries[0].changes] for one in altered]
    assert sorted(changes, key=len, reverse=True) == [
        [("producer_byte_rate", 1048576, True), ("request_percentage", 12.5, True)],
        [("request_percentage", 0, False)],
    ]
    assert tidelog("quota", "list") == 0
    assert all(shown in tidelog.out for shown in (b"alice", b"(default)", b"producer_byte_rate", b"1048576"))
    assert tidelog("quota", "list", "--json") == 0
    assert tidelog.json == [{"entity": {"user": "alice", "client_id": ""}, "quotas": {"producer_byte_rate": 1048576.0}}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("producer_byte_rate=1",), "whose quotas? Pass --user, --client-id, --default-user or --default-client-id"),
        (("producer_byte_rate=1", "-u", "a", "--default-user"), "or use --default-user"),
        (("producer_byte_rate=1", "-u", ""), "a user or client id is empty"),
        (("producer_byte_rate", "-u", "a"), "'producer_byte_rate' is not a quota (no =): write KEY=LIMIT"),
        (("producer_byte_rate=many", "-u", "a"), "'producer_byte_rate=many' is not a quota: write KEY=LIMIT"),
    ],
)
def test_a_quota_needs_its_clients_and_its_limit(
    cluster: MemoryCluster, tidelog: Terminal, arguments: tuple[str, ...], says: str
) -> None:
    assert tidelog("quota", "set", *arguments) == 1
    assert says in tidelog.err
    asked = [type(request) for node in cluster.nodes for request in node.asked]
    assert admin_pb2.AlterClientQuotasRequest not in asked
