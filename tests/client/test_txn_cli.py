"""`tidelog txn` and `tidelog partition who-holds-lso`: whose transaction is open, which one hangs, how to end it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tests.client.memory_transactions import MemoryTransactionalId
from tidelog import sync
from tidelog.cli import main
from tidelog.cli.transaction_commands import duration
from tidelog.client.transaction_admin import TransactionDescription
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import KnownProducer
from tidelog.errors import (
    ProducerFenced,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    UnreadableCoordinatorRecord,
)
from tidelog.protocol.v1 import data_pb2
from tidelog.types import PartitionIndex, TopicPartition

P0 = TopicPartition("orders", PartitionIndex(0))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        made.create("orders", 2)
        yield made


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    """The JSON that the command prints."""
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def active(cluster: MemoryCluster, *producers: data_pb2.ActiveProducer, stable: int = 0) -> None:
    """What leaders answer to DescribeProducers."""
    answer = data_pb2.DescribeProducersResponse()
    answer.partitions.add(
        topic_id=cluster.topics["orders"].topic_id.bytes, last_stable_offset=stable, producers=producers
    )
    for node in cluster.nodes:
        node.scripted["describe_producers"] = answer


def open_producer(producer_id: int, start: int, *, silent_ms: int = 1_000, epoch: int = 3) -> data_pb2.ActiveProducer:
    return data_pb2.ActiveProducer(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=9,
        last_timestamp_ms=MachineClock().wall_ms() - silent_ms,
        coordinator_epoch=-1,
        transaction_start=start,
    )


def test_consume_leaves_out_what_was_aborted(cluster: MemoryCluster, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with sync.Producer(cluster.bootstrap, transactional_id="etl") as producer:
        for value in (b"aborted", b"committed"):
            with producer.transaction() as txn:
                txn.send("orders", value, partition=0)
                if value == b"aborted":
                    txn.abort()
    for options, lines in (
        (["--isolation", "read_committed"], [b"committed"]),
        (["--isolation", "read_committed", "--group", "g"], [b"committed"]),
        ([], [b"aborted", b"committed"]),
    ):
        assert main(["consume", "orders", *options]) == 0
        assert capfdbinary.readouterr().out.splitlines() == lines
    assert main(["consume", "orders", "--isolation", "committed"]) == 2
    assert b"read_committed" in capfdbinary.readouterr().err


def test_transactional_ids_are_listed_and_described(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with sync.Producer(cluster.bootstrap, transactional_id="done") as done, done.transaction() as txn:
        txn.send("orders", b"v")
    with sync.Producer(cluster.bootstrap, transactional_id="etl", transaction_timeout_ms=45_000) as producer:
        with producer.transaction() as txn:
            txn.send("orders", b"v", partition=1)
            listed = output(capsys, "txn", "list")
            assert [(each["transactional_id"], each["state"], each["coordinator"]) for each in listed] == [
                ("done", "CompleteCommit", 0),
                ("etl", "Ongoing", 0),
            ]
            assert [each["transactional_id"] for each in output(capsys, "txn", "list", "--state", "Ongoing")] == ["etl"]
            (described,) = output(capsys, "txn", "describe", "etl")
            assert described["partitions"] == [{"topic": "orders", "partition": 1}]
            assert (described["transaction_timeout_ms"], described["producer_epoch"]) == (45_000, 0)
            assert main(["txn", "list"]) == 0
            shown = capsys.readouterr().out
            assert "2 transactional ids" in shown
            assert "Ongoing" in shown
            assert main(["txn", "describe", "etl", "nobody"]) == 1
            described = capsys.readouterr()
            assert "orders-1" in described.out
            assert "45 s" in described.out
            assert "'nobody'" in described.err
        found = output(capsys, "txn", "describe", "nobody", code=1)
        assert found[0]["error"]["name"] == "TransactionalIdNotFound"


def test_aborting_by_transactional_id_ends_the_transaction_and_fences_its_producer(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with sync.Producer(cluster.bootstrap, transactional_id="etl") as producer:
        with pytest.raises(ProducerFenced, match="txn abort"), producer.transaction() as txn:
            txn.send("orders", b"v", partition=0)
            assert main(["txn", "abort", "etl"]) == 0
            assert "its open transaction is aborted" in capsys.readouterr().err
        assert output(capsys, "txn", "abort", "etl") == {
            "transactional_id": "etl",
            "producer_id": 1,
            "was_open": False,
        }
    assert cluster.topics["orders"].partitions[0].aborted == [(1, 0)]
    assert main(["txn", "abort", "nobody"]) == 1
    assert "nobody" not in cluster.transactions.ids, "asking creates no transactional id"
    capsys.readouterr()


def test_a_coordinator_with_an_unreadable_record_hides_no_other_transactional_id(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.transactions.ids["etl"] = MemoryTransactionalId(1)
    cluster.transactions.is_damaged = True
    with (
        sync.Admin(cluster.bootstrap) as admin,
        pytest.raises(UnreadableCoordinatorRecord, match=r"__transaction_state-1 .*offset 3 is malformed"),
    ):
        admin.list_transactions()
    assert main(["txn", "list", "--json"]) == 1
    shown = capsys.readouterr()
    assert [each["transactional_id"] for each in json.loads(shown.out)] == ["etl"]
    assert "__transaction_state-1" in shown.err
    assert "offset 3 is malformed" in shown.err


def test_transactional_ids_are_listed_by_pattern(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("etl-1", "etl-12", "other")):
        cluster.transactions.ids[name] = MemoryTransactionalId(number)
    with sync.Admin(cluster.bootstrap) as admin:
        assert [each.transactional_id for each in admin.list_transactions(pattern="etl-[0-9]")] == ["etl-1"]
    found = output(capsys, "txn", "list", "--pattern", r"etl-\d+")
    assert [each["transactional_id"] for each in found] == ["etl-1", "etl-12"]
    assert main(["txn", "list", "--pattern", "etl("]) == 1
    assert "regular expression" in capsys.readouterr().err


def test_who_holds_the_last_stable_offset(cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with sync.Producer(cluster.bootstrap, transactional_id="etl") as producer:
        with producer.transaction() as txn:
            txn.send("orders", b"v", partition=0)
            active(cluster, open_producer(7, 5, silent_ms=120_000), open_producer(1, 0, epoch=0))
            assert main(["partition", "who-holds-lso", "orders-0"]) == 0
            said = capsys.readouterr().err.splitlines()
            assert said[0] == "orders-0: the last stable offset is 0, 1 offset before the end 1"
            assert "since offset 0: producer 1 in epoch 0, Ongoing for" in said[1]
            assert "transactional id 'etl', coordinator: node 0" in said[1]
            assert "tidelog txn abort etl" in said[2]
            assert "since offset 5: producer 7 in epoch 3, last write 2 min ago" in said[3]
            assert "no coordinator knows this producer id: it hangs" in said[3]
            assert "if there is no write for 15 min (transaction.max.timeout.ms)" in said[4], (
                "a node that does not tell"
            )
            assert "tidelog txn abort --partition orders-0 --start-offset 5" in said[4]
            document = output(capsys, "partition", "who-holds-lso", "orders-0")
            assert [each["is_hanging"] for each in document["transactions"]] == [False, True]
            assert document["transactions"][0]["description"]["transactional_id"] == "etl"
        active(cluster, stable=2)
        assert main(["partition", "who-holds-lso", "orders-0"]) == 0
        assert "no transaction is open; the last stable offset is 2" in capsys.readouterr().err
    assert main(["partition", "who-holds-lso", "orders"]) == 2
    assert "write TOPIC-NUMBER" in capsys.readouterr().err


def test_a_transaction_hangs_if_it_is_silent_for_long_and_its_coordinator_does_not_know_the_partition(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four are open in the partition: one is unknown, one is known but elsewhere, one is young, one is in order."""
    day = 86_400_000
    cluster.create("alone", 1)
    del cluster.topics["orders"]
    cluster.create("orders", 1)
    with sync.Producer(cluster.bootstrap, transactional_id="etl") as producer, producer.transaction() as txn:
        txn.send("alone", b"v", partition=0)
        active(cluster, open_producer(70, 2, silent_ms=day), open_producer(1, 4, silent_ms=day), open_producer(71, 8))
        found = output(capsys, "txn", "find-hanging", "--topic", "orders", code=1)
        assert [(each["producer_id"], each["start_offset"]) for each in found] == [(70, 2), (1, 4)]
        cluster.transactions.max_timeout_ms = 500
        found = output(capsys, "txn", "find-hanging", "--topic", "orders", code=1)
        assert [each["producer_id"] for each in found] == [70, 1, 71], "the nodes say what is long"
        assert main(["partition", "who-holds-lso", "orders-0"]) == 0
        assert "if there is no write for 500 ms (transaction.max.timeout.ms)" in capsys.readouterr().err
        assert main(["txn", "find-hanging", "--topic", "orders", "--max-timeout-ms", str(2 * day)]) == 0
        assert "no transaction hangs" in capsys.readouterr().err
        assert main(["txn", "find-hanging", "--topic", "orders", "--max-timeout-ms", "0"]) == 1
        assert "--partition orders-0 --start-offset 8" in capsys.readouterr().out
        txn.send("orders", b"v", partition=0)
        active(cluster, open_producer(1, 0, silent_ms=day))
        assert output(capsys, "txn", "find-hanging", "--topic", "orders") == []


def test_a_hanging_transaction_is_aborted_by_its_first_offset(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    active(cluster, open_producer(70, 2), open_producer(71, 8))
    for node in cluster.nodes:
        node.scripted["abort_transaction"] = data_pb2.AbortTransactionResponse()
    found = output(capsys, "txn", "abort", "--partition", "orders-0", "--start-offset", "8")
    assert found == {"partition": "orders-0", "start_offset": 8, "producer_id": 71}
    (request,) = (
        each for node in cluster.nodes for each in node.asked if isinstance(each, data_pb2.AbortTransactionRequest)
    )
    assert (request.producer_id, request.producer_epoch, request.transaction_start) == (71, 3, 8)
    assert main(["txn", "abort", "--partition", "orders-0", "--start-offset", "3"]) == 1
    assert "transactions begin at [2, 8]" in capsys.readouterr().err
    for arguments in ([], ["etl", "--start-offset", "3"], ["--partition", "orders-0"]):
        assert main(["txn", "abort", *arguments]) == 2
        assert "give a transactional id, or --partition" in capsys.readouterr().err


@pytest.mark.usefixtures("no_lag")
def test_a_synchronous_admin_has_the_same_calls(cluster: MemoryCluster) -> None:
    with (
        sync.Producer(cluster.bootstrap, transactional_id="etl") as producer,
        sync.Admin(cluster.bootstrap) as admin,
        producer.transaction() as txn,
    ):
        txn.send("orders", b"v", partition=0)
        active(cluster, open_producer(1, 0))
        (listed,) = admin.list_transactions(producer_ids=[1])
        assert listed.transactional_id == "etl"
        found = admin.describe_transactions(["etl", "nobody"])
        assert isinstance(found["etl"], TransactionDescription)
        assert isinstance(found["nobody"], TransactionalIdNotFound)
        (known,) = admin.describe_producers([P0])[P0].producers
        assert isinstance(known, KnownProducer)
        assert [each.is_hanging for each in admin.open_transactions([P0])] == [False]
        with pytest.raises(UnknownTopicOrPartition):
            admin.describe_producers([("nowhere", 0)])


def test_times_are_shown_with_one_unit() -> None:
    shown = [duration(ms) for ms in (0, 999, 1_000, 1_500, 2_000, 60_000, 119_000, 7_200_000)]
    assert shown == ["0 ms", "999 ms", "1 s", "1500 ms", "2 s", "1 min", "119 s", "2 h"]
