"""`tidelog group`, `tidelog consume --group`, Admin's calls about groups and `tidelog.sync`: a cluster in memory."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tidelog import sync
from tidelog.cli import consume_command, main
from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import (
    GroupIdNotFound,
    NonEmptyGroup,
    NotCoordinator,
    TidelogError,
    UnreadableCoordinatorRecord,
    UnsupportedVersion,
)
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, Millis, Offset, PartitionIndex, TopicPartition


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        yield made


class Terminal:
    """Runs commands and keeps their output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[bytes]) -> None:
        self._monkeypatch, self._captured = monkeypatch, captured
        self.out, self.err = b"", ""

    def __call__(self, *arguments: str) -> int:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        code = main(list(arguments))
        said = self._captured.readouterr()
        self.out, self.err = said.out, said.err.decode()
        return code

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def place(index: int) -> TopicPartition:
    return TopicPartition("orders", PartitionIndex(index))


def fill(cluster: MemoryCluster, index: int, count: int) -> None:
    """Append records to orders; the timestamp of each is its offset times 1000."""
    partition = cluster.topics["orders"].partitions[index]
    first = partition.end
    records = [
        Record(Offset(number), Millis((first + number) * 1000), None, b"%d:%d" % (index, first + number))
        for number in range(count)
    ]
    partition.append(build_batch(records, Codec.NONE, base_offset=0))


def orders(cluster: MemoryCluster, partitions: int = 2, records: int = 10) -> None:
    cluster.create("orders", partitions)
    for index in range(partitions):
        fill(cluster, index, records)


def stored(cluster: MemoryCluster, group: str = "g") -> dict[int, int]:
    return {index: each.offset for (_, index), each in sorted(cluster.groups.groups[group].offsets.items())}


def test_a_member_on_the_command_line_commits_what_it_printed(cluster: MemoryCluster, tidelog: Terminal) -> None:
    orders(cluster)
    assert tidelog("consume", "orders", "--group", "g", "-n", "15") == 0
    first = tidelog.out.split()
    assert (len(first), tidelog.err) == (15, "15 records\n")
    assert sum(stored(cluster).values()) == 15
    assert tidelog("consume", "orders", "--group", "g") == 0, tidelog.err
    assert sorted([*first, *tidelog.out.split()]) == sorted(b"%d:%d" % (i, n) for i in range(2) for n in range(10))
    assert stored(cluster) == {0: 10, 1: 10}
    assert tidelog("consume", "orders", "--group", "g") == 0
    assert tidelog.out == b""
    assert tidelog("consume", "orders", "--group", "late", "--from", "latest") == 0
    assert tidelog.out == b""
    assert tidelog("consume", "orders", "--group", "g", "-p", "0") == 2
    assert "leave out --partition" in tidelog.err


def test_a_committed_offset_that_is_not_in_the_log_names_the_command_that_moves_it(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    orders(cluster, partitions=1)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 100})
    assert tidelog("consume", "orders", "--group", "g") == 1
    assert "tidelog group reset-offsets g --topic orders --to-earliest --execute" in tidelog.err
    assert "on_out_of_range" not in tidelog.err


def test_a_refusal_of_a_committed_offset_is_waited_for(
    cluster: MemoryCluster, tidelog: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polls end long before the leader's answer: it said nothing, and ended as if all were read."""
    monkeypatch.setattr(consume_command, "POLL_S", 0.0)
    monkeypatch.setattr(consume_command, "UNASSIGNED_POLLS_MAX", 10**9)
    orders(cluster, partitions=1)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 100})
    assert tidelog("consume", "orders", "--group", "g") == 1
    assert "tidelog group reset-offsets g" in tidelog.err


def test_a_member_on_nodes_of_an_old_feature_level_is_told_the_next_step(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    orders(cluster)
    old = UnsupportedVersion("a group needs feature level 5: raise it (`tidelog cluster upgrade`)")
    cluster.groups.refuse = lambda request: old if isinstance(request, pb.FindCoordinatorRequest) else None
    assert tidelog("consume", "orders", "--group", "g") == 1
    assert "tidelog cluster upgrade" in tidelog.err
    assert cluster.groups.finds == 1, "asked before the member begins"


def test_groups_are_listed_described_and_deleted(cluster: MemoryCluster, tidelog: Terminal) -> None:
    orders(cluster)
    with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"], client_id="alice") as consumer:
        consumer.poll(timeout=5)
        assert tidelog("group", "list", "--json") == 0
        assert tidelog.json == [
            {"group_id": "g", "type": "consumer", "state": "Stable", "members": 1, "protocol_type": "consumer"}
        ]
        assert tidelog("group", "list") == 0
        assert b"Stable" in tidelog.out
        assert tidelog("group", "describe", "g") == 0
        assert "group 'g' (consumer): Stable, 1 member, epoch 1, assignor uniform" in tidelog.err
        assert b"orders-0,1" in tidelog.out
        assert b"alice" in tidelog.out
        assert tidelog("group", "describe", "g", "missing", "--json") == 1
        described, missing = tidelog.json
        assert described["members"][0]["assignment"] == [
            {"topic": "orders", "partition": 0},
            {"topic": "orders", "partition": 1},
        ]
        assert missing["error"] == "GROUP_ID_NOT_FOUND"
        assert tidelog("group", "delete", "g") == 1
        assert "has members: stop them first; `tidelog group describe g` shows them" in tidelog.err
    assert tidelog("group", "list", "--state", "Stable", "--json") == 0
    assert tidelog.json == []
    assert tidelog("group", "list", "--state", "Stabel") == 2
    assert "unknown group state 'Stabel'; use Empty, Assigning," in tidelog.err
    assert tidelog("group", "delete", "g") == 0
    assert tidelog.err == "group 'g' deleted\n"
    assert tidelog("group", "delete", "g", "--json") == 1
    assert tidelog.json == [{"group": "g", "deleted": False}]


def test_lag_is_shown_for_each_partition_and_its_member(cluster: MemoryCluster, tidelog: Terminal) -> None:
    orders(cluster)
    with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"], client_id="alice", auto_commit=False) as reader:
        while len(reader.assignment) < 2:
            reader.poll(timeout=0.01)
        reader.commit({place(0): 7})
        assert tidelog("group", "lag", "g", "--json") == 0
        (group,) = tidelog.json
        assert (group["group"], group["lag"], group["deleted"], group["unknown"]) == ("g", 3, 0, 1)
        first, second = group["partitions"]
        assert (first["committed"]["offset"], first["end"], first["lag"]) == (7, 10, 3)
        assert (first["client_id"], first["client_host"]) == ("alice", "127.0.0.1")
        assert (second["committed"], second["lag"], second["deleted"]) == (None, None, None)
        assert tidelog("group", "lag", "g", "--watch", "--times", "2", "--interval", "0.1") == 0
        assert tidelog.out.count(b"g: 3 records behind, unknown of 1 partition") == 2
        assert tidelog.out.count(b"alice") == 4
    cluster.lead("orders", 1, -1)
    assert tidelog("group", "lag", "g", "--json") == 0
    assert [each["lag"] for each in tidelog.json[0]["partitions"]] == [3], "no member, no offset: not of the group"
    assert tidelog("group", "lag", "nobody") == 1
    assert "there is no group 'nobody'" in tidelog.err


def test_a_lag_that_is_not_known_is_no_number(cluster: MemoryCluster, tidelog: Terminal) -> None:
    """A member that never committed; and a topic of the same name: offsets of the former one mean nothing for it."""

    def lag() -> tuple[Any, ...]:
        assert tidelog("group", "lag", "g", "--json") == 0
        (group,) = tidelog.json
        (row,) = group["partitions"]
        return group["lag"], group["unknown"], row["committed"], row["start"], row["end"]

    orders(cluster, partitions=1, records=52)
    with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"], auto_commit=False) as reader:
        while not reader.assignment:
            reader.poll(timeout=0.01)
        assert lag() == (None, 1, None, 0, 52)
        assert tidelog("group", "lag", "g") == 0
        assert b"g: lag unknown" in tidelog.out
        reader.commit({place(0): 52})
        assert lag()[:2] == (0, 0)
    cluster.delete("orders")
    assert lag()[:2] == (None, 1)
    orders(cluster, partitions=1, records=150)
    assert lag() == (None, 1, None, 0, 150)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 200})
    assert lag()[:2] == (None, 1), "beyond the end: members find no such offset"


def test_records_that_were_deleted_unread_are_counted_apart(cluster: MemoryCluster, tidelog: Terminal) -> None:
    cluster.create("orders", 1)
    cluster.topics["orders"].partitions[0].start = 1000
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 10})
        (lag,) = admin.group_lag("g")
        assert (lag.start, lag.end, lag.lag, lag.deleted) == (1000, 1000, 0, 990)
    assert tidelog("group", "lag", "g", "--json") == 0
    assert (tidelog.json[0]["lag"], tidelog.json[0]["deleted"]) == (0, 990)
    assert tidelog("group", "lag", "g") == 0
    assert b"g: 0 records behind, 990 deleted before it read them" in tidelog.out


@pytest.mark.parametrize(
    ("goal", "after"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 10}),
        (("--to-offset", "4"), {0: 4, 1: 4}),
        (("--to-offset", "400"), {0: 10, 1: 10}),
        (("--shift-by", "-2"), {0: 4, 1: 0}),
        (("--to-time", "1970-01-01T00:00:03"), {0: 3, 1: 3}),
        (("--by-duration", "PT1H"), {0: 10, 1: 10}),
        (("--by-duration", "1h"), {0: 10, 1: 10}),
        (("--by-duration", "P365000D"), {0: 0, 1: 0}),
    ],
)
def test_offsets_are_reset_once_the_plan_is_confirmed(
    cluster: MemoryCluster, tidelog: Terminal, goal: tuple[str, ...], after: dict[int, int]
) -> None:
    orders(cluster)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 6, ("orders", 1): CommittedOffset(Offset(1), metadata="mine")})
    assert tidelog("group", "reset-offsets", "g", "--topic", "orders", *goal, "--json") == 0
    assert tidelog.json == {
        "group": "g",
        "executed": False,
        "changes": [
            {"partition": {"topic": "orders", "partition": index}, "before": before, "after": after[index]}
            for index, before in ((0, 6), (1, 1))
        ],
    }
    assert "nothing was changed: pass --execute" in tidelog.err
    assert stored(cluster) == {0: 6, 1: 1}
    assert tidelog("group", "reset-offsets", "g", "--all-topics", *goal, "--execute") == 0
    assert tidelog.err == "2 offsets set\n"
    assert stored(cluster) == after


def test_a_reset_says_what_is_missing(cluster: MemoryCluster, tidelog: Terminal) -> None:
    orders(cluster)
    for arguments, code, says in (
        (("--to-earliest",), 2, "say of which partitions"),
        (("--topic", "orders"), 2, "say where to set the offsets"),
        (("--topic", "orders", "--to-earliest", "--to-latest"), 2, "with one of"),
        (("--topic", "orders", "--to-earliest", "--execute", "--dry-run"), 2, "pass one of them"),
        (("--topic", "orders", "--to-time", "yesterday"), 2, "2026-01-31"),
        (("--topic", "orders", "--by-duration", "an hour"), 2, "ISO 8601"),
        (("--topic", "orders", "--shift-by", "1"), 1, "orders-0, orders-1 has none"),
        (("--all-topics", "--to-earliest"), 1, "no committed offsets"),
        (("--partition", "orders", "--to-earliest"), 2, "TOPIC-NUMBER"),
        (("--topic", "missing", "--to-earliest"), 1, "there is no topic 'missing'"),
    ):
        assert tidelog("group", "reset-offsets", "g", *arguments) == code, arguments
        assert says in tidelog.err, arguments
    with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"]) as consumer:
        consumer.poll(timeout=5)
        assert tidelog("group", "reset-offsets", "g", "--topic", "orders", "--to-latest") == 0
        assert "Stop its 1 member first." in tidelog.err
        assert tidelog("group", "reset-offsets", "g", "--topic", "orders", "--to-latest", "--execute") == 1
        assert "stop all consumers of the group" in tidelog.err
        with sync.Admin(cluster.bootstrap) as admin, pytest.raises(NonEmptyGroup, match="stop them"):
            admin.alter_group_offsets("g", {place(0): 0})


def test_a_reset_of_a_group_that_does_not_exist_says_that_it_creates_it(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    orders(cluster)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("payments", {place(0): 6})
        wrong = ("group", "reset-offsets", "paymnets", "--topic", "orders", "--to-earliest")
        assert tidelog(*wrong) == 0
        assert "There is no group 'paymnets': that would create it; `tidelog group list` shows" in tidelog.err
        admin.delete_groups(["paymnets"])  # the cluster in memory creates a group whose offsets are asked for
        assert tidelog(*wrong, "--execute") == 0
        assert tidelog.err == "2 offsets set: there was no group 'paymnets', it was created with them\n"
        assert tidelog("group", "reset-offsets", "payments", "--topic", "orders", "--to-earliest", "--execute") == 0
        assert tidelog.err == "2 offsets set\n"


def test_offsets_of_topics_that_nobody_reads_are_deleted(cluster: MemoryCluster, tidelog: Terminal) -> None:
    orders(cluster)
    cluster.create("payments", 1)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {("payments", 0): 0, place(0): 6, place(1): 7})
        assert tidelog("group", "delete-offsets", "g", "-p", "orders-1", "--json") == 0
        partition = {"topic": "orders", "partition": 1}
        assert tidelog.json == {"group": "g", "partitions": [{"partition": partition, "deleted": True}]}
        assert [str(key) for key in admin.list_group_offsets("g")] == ["orders-0", "payments-0"]
        for arguments, code, says in (
            ((), 2, "say which offsets"),
            (("--topic", "users"), 1, "no committed offset of 'users'"),
            (("--partition", "orders"), 2, "TOPIC-NUMBER"),
        ):
            assert tidelog("group", "delete-offsets", "g", *arguments) == code, arguments
            assert says in tidelog.err, arguments
        with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"]) as consumer:
            consumer.poll(timeout=5)
            assert tidelog("group", "delete-offsets", "g", "-t", "payments", "-t", "orders") == 1
            assert "1 offset of group 'g' deleted\ntidelog: the offset of orders-0 was not deleted: " in tidelog.err
            assert "stop" in tidelog.err
        assert {key.topic for key in admin.list_group_offsets("g")} == {"orders"}
        assert tidelog("group", "delete-offsets", "g", "--topic", "orders") == 0


def test_groups_whose_coordinator_cannot_be_read_are_named_as_missing(
    cluster: MemoryCluster, tidelog: Terminal
) -> None:
    orders(cluster)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 6})
        cluster.groups.is_damaged = True
        with pytest.raises(UnreadableCoordinatorRecord, match=r"__consumer_offsets-1 .*offset 3 is malformed"):
            admin.list_groups()
        assert tidelog("group", "list", "--json") == 1
    assert [each["group_id"] for each in tidelog.json] == ["g"]
    assert "__consumer_offsets-1" in tidelog.err


def test_an_admin_asks_each_coordinator_again_until_it_knows(cluster: MemoryCluster) -> None:
    orders(cluster)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.alter_group_offsets("g", {place(0): 6, place(1): 2})
        assert admin.list_group_offsets("g", [place(0), place(7)]) == {
            place(0): CommittedOffset(Offset(6)),
            place(7): None,
        }
        cluster.groups.node = 1  # the coordinator moves; the client remembers the former one
        found = admin.describe_groups(["g", "missing"])
        assert not isinstance(found["g"], TidelogError)
        assert isinstance(found["missing"], GroupIdNotFound)
        assert [group.group_id for group in admin.list_groups()] == ["g"]
        assert admin.delete_group_offsets("g", [place(1)]) == {place(1): None}
        assert stored(cluster) == {0: 6}
        assert admin.delete_groups(["g", "missing"])["g"] is None
    cluster.groups.refuse = lambda request: (
        NotCoordinator("it is being elected") if isinstance(request, pb.FindCoordinatorRequest) else None
    )
    with sync.Admin(cluster.bootstrap, patience_ms=300) as admin:
        assert isinstance(admin.describe_groups(["g"])["g"], NotCoordinator)
        with pytest.raises(NotCoordinator, match="it is being elected"):
            admin.list_group_offsets("g")
        with pytest.raises(TypeError, match="list of ids"):
            admin.describe_groups("g")


def test_a_synchronous_iteration_commits_what_was_processed(cluster: MemoryCluster) -> None:
    orders(cluster, 1)
    with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"]) as consumer:
        for record in consumer:
            if record.offset == 3:
                break
    assert stored(cluster) == {0: 4}, "no error: the record in hand is processed"
    with (
        pytest.raises(ZeroDivisionError),
        sync.Consumer(cluster.bootstrap, group="g", topics=["orders"]) as consumer,
    ):
        for record in consumer:
            if record.offset == 6:
                1 / 0  # noqa: B018
    assert stored(cluster) == {0: 6}
    with sync.Consumer(cluster.bootstrap, group="g", topics=["orders"], auto_commit=False) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            consumer.commit()
            assert stored(cluster) == {0: record.offset + 1}
            if record.offset == 9:
                break
        assert seen == [6, 7, 8, 9]


def test_callbacks_of_a_synchronous_consumer_may_call_it(cluster: MemoryCluster) -> None:
    orders(cluster, 2)
    log: list[str] = []

    def on_assigned(partitions: list[TopicPartition]) -> None:
        consumer.seek(partitions[0], 8)
        consumer.pause(partitions[1:])
        log.append("assigned")

    def on_revoked(partitions: list[TopicPartition]) -> None:
        consumer.commit({partitions[0]: 9})
        log.append("revoked")

    consumer = sync.Consumer(
        cluster.bootstrap,
        group="g",
        topics=["orders"],
        on_assigned=on_assigned,
        on_revoked=on_revoked,
        auto_commit=False,
    )
    with consumer:
        assert [record.offset for record in consumer.poll(timeout=5)] == [8, 9]
        consumer.resume([place(1)])
        assert len(consumer.poll(timeout=5)) == 10
        assert consumer.committed([place(0)]) == {place(0): None}
    assert log == ["assigned", "revoked"]
    assert stored(cluster) == {0: 9}
