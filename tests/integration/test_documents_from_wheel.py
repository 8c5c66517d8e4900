"""What the README and the documents of the client, groups, transactions and operations say to type works from the
wheel alone: the commands of their blocks and sentences and their Python, against `tidelog up` of the same wheel.

`STORY` is their order, with values for the words that stand for one; `NOT_RUN` says why the others are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.document_steps import (
    NAMED,
    SECURED,
    STARTS,
    Command,
    Presupposed,
    Python,
    Step,
    fault_of,
    install,
    names_of,
    up,
    written,
)

pytestmark = pytest.mark.integration

DOCUMENTS = (
    "README.md",
    "docs/client.md",
    "docs/groups.md",
    "docs/transactions.md",
    "docs/operations.md",
    "docs/apply.md",
    "docs/snapshots.md",
)

ACL_NAMES = ("AclBinding", "AclFilter", "AclOperation", "AclPermission", "PatternType", "ResourceType")


ANOTHER_ORDER = """\
async with tidelog.Producer("host:9192") as first:
    await first.send("orders", b"another order")
"""
PROCESS = (
    ANOTHER_ORDER
    + """
async def process(record):
    print("processed", record.value.decode())
    raise EndOfTest
"""
)
INVOICE = (
    ANOTHER_ORDER
    + """
def invoice(value):
    print("invoice of", value.decode())
    return value
"""
)
SYNC_PROCESS = """\
values = [b"many", b"values"]
def process(record):
    print("processed", record.value.decode())
    raise EndOfTest
"""
TOPIC_OF_OBJECTS = """\
async with tidelog.Admin("host:9192") as admin:
    print(*await admin.create_topics([tidelog.NewTopic("objects")]))
"""
OPEN_TRANSACTION = """\
async with tidelog.Producer("host:9192", transactional_id="billing-2") as producer:
    async with producer.transaction() as txn:
        await txn.send("orders", b"undecided")
        print("undecided", flush=True)
        os._exit(0)  # as a program that is killed
"""

ANOTHER_PREFERRED_LEADER = """\
import asyncio
async with tidelog.Admin("host:9192") as admin:
    (led,) = (await admin.describe_topic("orders")).partitions
    others = [node for node in range(3) if node != led.leader]
    (outcome,) = await admin.reassign({("orders", 0): [*others, led.leader]})
    while others[0] not in (await admin.describe_topic("orders")).partitions[0].isr:
        await asyncio.sleep(0.1)
    print("the replicas of", outcome.partition)
"""
"""Without it, the partition may be led by its preferred leader, and no election is needed. The new one has to be in
sync."""

STATE_FILES = """\
os.mkdir("state")
with open("state/state.toml", "w") as file:
    file.write("[topics.applied]\\npartitions = 2\\nconfigs.retention.ms = 3_600_000\\n")
print("a topic is described")
"""

STORY: tuple[Step, ...] = (
    Command("topic create orders"),
    Command("topic create invoices"),
    Command("topic create NAME -p 6 -r 3 -c min.insync.replicas=2", {"NAME": "payments"}),
    Python("README.md", "What works today", says="a value"),
    Python("README.md", "What works today, 2", behind="print('committed', len(records))", says="committed"),
    Python(
        "docs/client.md",
        "Writing",
        before="import pyarrow\nvalues, keys = [b'a', b'b'], [b'k', None]\ntable = pyarrow.table({'value': values})",
    ),
    Presupposed(TOPIC_OF_OBJECTS, says="objects"),
    Python(
        "docs/client.md",
        "Serializers and interceptors",
        behind="consumer.assign([('objects', 0)])\nprint((await consumer.poll(1))[0].value)",
        values={'"orders"': '"objects"'},
        says="{'total': 3}",
    ),
    Python("docs/client.md", "Transactions", before=INVOICE, says="invoice of another order"),
    Python("docs/client.md", "Reading", behind="print(record.value)\nbreak", says="b'"),
    Python("docs/client.md", "In a group", before=PROCESS, says="processed another order"),
    Python("docs/client.md", "OpenTelemetry", before=PROCESS, says="processed another order"),
    Python("docs/client.md", "Without asyncio", before=SYNC_PROCESS, says="processed"),
    Python("docs/groups.md", "Consumer groups", before=PROCESS, says="processed another order"),
    Python(
        "docs/client.md",
        "Administration",
        before=f"from tidelog.security.acls import {', '.join(ACL_NAMES)}",
        values={'"orders"': '"shipments"', '"invoices"': '"refunds"', "1_000": "0"},  # it has no records
    ),
    Command("topic list", says="shipments"),
    Command("topic describe NAME"),
    Command("topic offsets NAME --at TIME"),
    Command("tier describe TOPIC", says="no remote segments"),
    Command("config describe --topic NAME --node 1 --changed", says="settings of"),
    Command("config alter --topic NAME -c KEY=VALUE -d KEY", {"KEY=VALUE": "retention.ms=1", "KEY": "segment.bytes"}),
    Command("log-dirs --node 1 --topic NAME --logs", says="log directories"),
    Command("bench produce TOPIC -n 1 --size 1", {"TOPIC": "shipments"}, says="1 records"),
    Command("bench consume TOPIC -n 1", {"TOPIC": "shipments"}, says="1 records"),
    Command("bench latency TOPIC -n 1", {"TOPIC": "shipments"}, says="acknowledged"),
    Command(
        "topic alter NAME -c retention.ms=3600000 -d segment.bytes -p 12 --replication-factor 3", {"NAME": "shipments"}
    ),
    Command("topic alter NAME --replication-factor 1", {"NAME": "shipments"}),
    Command("topic delete NAME", {"NAME": "shipments"}),
    Command(
        "produce TOPIC -k SEPARATOR --input FILE --timeout 1 --client-id NAME",
        {"TOPIC": "payments", "NAME": "nightly", "1": "60"},
        says="60 records acknowledged",
    ),
    Command("consume TOPIC --from earliest -p 1 -n 1 --follow --keys", {"TOPIC": "payments"}, says="1 record"),
    Command("consume TOPIC --offset 1 -p 1", {"TOPIC": "payments"}, more="-n 1", says="1 record"),
    Command("consume TOPIC --group GROUP --follow -n 1", {"TOPIC": "payments", "GROUP": "tellers"}, says="1 record"),
    Command("consume TOPIC --isolation read_committed", {"TOPIC": "invoices"}, says="another order"),
    Command("consume orders", says="another order"),
    Command("group list", says="tellers"),
    Command("group list --state Empty", says="tellers"),
    Command("group describe GROUP"),
    Command("group lag GROUP"),
    Command("group lag GROUP --watch", more="--times 1"),
    Command("group lag GROUP --watch --interval 2", more="--times 1"),
    Command("group reset-offsets GROUP --topic NAME --to-earliest"),
    Command("group reset-offsets GROUP -t TOPIC --to-earliest", says="nothing was changed"),
    Command("group reset-offsets GROUP -t TOPIC --to-latest"),
    Command("group reset-offsets GROUP -t TOPIC --to-time TIME"),
    Command("group reset-offsets GROUP -p TOPIC-N --by-duration PT1H"),
    Command("group reset-offsets GROUP -p TOPIC-N --to-offset 1"),
    Command("group reset-offsets GROUP --all-topics --shift-by -10 --execute", says="set"),
    Command("group delete-offsets GROUP -p TOPIC-N"),
    Command("group delete-offsets GROUP --partition TOPIC-N"),
    Command("group delete-offsets GROUP -t TOPIC", {"GROUP": "tellers", "TOPIC": "payments"}),
    Command("group delete-offsets GROUP --topic NAME", {"NAME": "payments"}),
    Command("group delete GROUP"),
    Command("txn list", says="billing-1"),
    Presupposed(OPEN_TRANSACTION, says="undecided"),
    Command("txn list --state STATE --open-for-ms 1 --pattern RE2", says="billing-2"),
    Command("txn list --state Ongoing --open-for-ms 1 --pattern RE2", says="billing-2"),
    Command("txn describe ID", {"ID": "billing-2"}, says="Ongoing"),
    Command("partition who-holds-lso TOPIC-N", says="tidelog txn abort billing-2"),
    Command("txn find-hanging"),
    Command("txn find-hanging --topic NAME"),
    Command("txn abort ID", {"ID": "billing-2"}, says="its open transaction is aborted"),
    Command("acl add --allow User:NAME -o OPERATION --topic NAME --prefixed --host ADDRESS"),
    Command("acl add --allow User:NAME -o Read --group NAME"),
    Command("acl list", says="User:alice"),
    Command("acl test User:NAME OPERATION --topic NAME --host ADDRESS", says="allow"),
    Command("acl remove --principal User:NAME --topic NAME --prefixed"),
    Command("user add NAME --password-file FILE", {"NAME": "alice"}),
    Command("user list", says="alice"),
    Command("user remove NAME", {"NAME": "alice"}),
    Command("quota set KEY=LIMIT", more="-u alice"),
    Command("quota set KEY=LIMIT --user U"),
    Command("quota set KEY=LIMIT --client-id C"),
    Command("quota set KEY=LIMIT --default-user"),
    Command("quota set KEY=LIMIT --default-client-id"),
    Command("quota list", says="alice"),
    Command("quota remove KEY", more="-u alice"),
    Command("cluster status"),
    Command("cluster upgrade-check", says="feature level"),
    Command("cluster upgrade"),
    Command("top --interval 1 --times 1", says="orders"),
    Command("partition why-unavailable", says="no problems found"),
    Command("partition why-unavailable TOPIC-N", says="works"),
    Command("partition elect"),
    Presupposed(ANOTHER_PREFERRED_LEADER, says="the replicas of orders-0"),
    Command("partition elect TOPIC-N", says="1 partition"),
    Command("partition elect --unclean TOPIC-N", code=1, says="is led by node"),
    Command("partition elect --unclean --yes TOPIC-N", says="is led by node"),
    Command("partition reassign TOPIC-N --replicas 1,2,4", says="1 partition"),
    Command("partition reassign TOPIC-N --cancel", code=1, says="no reassignment of orders-0 is in progress"),
    Command("partition moves"),
    Command("cluster rebalance --dry-run", says="to move"),
    Command("cluster rebalance --dry-run --save-plan FILE", {"FILE": "plan.json"}, says="to move"),
    Command("cluster rebalance --plan-file FILE --no-wait", {"FILE": "plan.json"}, says="move"),
    Command("cluster rebalance --status", says="queued"),
    Command("cluster rebalance --cancel", says="cancelled"),
    Command("cluster rebalance", says="move"),
    Command("cluster rebalance --dry-run --drain 1", code=1, says="only 2 nodes take replicas"),
    Command("cluster rebalance --drain 1 --log-dir PATH", {"PATH": "/elsewhere"}, code=1, says="has no log directory"),
    Command(
        "cluster rebalance --drain 1 --log-dir PATH --no-wait",
        {"PATH": "/elsewhere"},
        code=1,
        says="has no log directory",
    ),
    Command("log-dirs --logs", says="log directories"),
    Command("node cordon 1", says="node 1 is cordoned"),
    Command("node uncordon 1", says="node 1 may get new replicas again"),
    Command("log-dirs", says="cordoned"),
    Command("snapshot create friday orders invoices --expires 7d", says="snapshot friday: 2 topics"),
    Command("snapshot list", says="friday"),
    Command("snapshot describe friday", says="orders-0"),
    Command("snapshot extend friday --expires 14d", says="snapshot friday expires at"),
    Command("snapshot delete friday", says="snapshot friday is deleted"),
    Command("snapshot delete NAME", {"NAME": "friday"}, code=1, says="there is no snapshot 'friday'"),
    Command("node cordon 1 --log-dir PATH", {"PATH": "/elsewhere"}, code=1, says="has no log directory"),
    Command("node uncordon 1 --log-dir PATH", {"PATH": "/elsewhere"}, code=1, says="has no log directory"),
    Command("node drain 1", code=1, says="only 2 nodes take replicas"),
    Command("node drain 1 --dry-run", code=1, says="only 2 nodes take replicas"),
    Command("node drain 1 --cancel", says="0 moves cancelled"),
    Command("node drain 3", {"3": "2"}, code=1, says="only 2 nodes take replicas"),
    Command("node remove 1", code=1, says="is alive"),
    Command("node remove 3", {"3": "2"}, code=1, says="is alive"),
    Command("node safe-to-restart 1"),
    Command("node safe-to-restart 0"),
    Command("log-dirs --node 3 --logs", {"3": "2"}, says="log directories"),
    Command("topic create orders -p 6 -r 3", {"orders": "runbook"}),
    Presupposed(STATE_FILES, says="a topic is described"),
    Command("apply --file DIRECTORY --diff", {"DIRECTORY": "state"}, code=1, says="create"),
    Command("apply --file DIRECTORY", {"DIRECTORY": "state"}, says="1 created"),
    Command("apply --file DIRECTORY --diff --prune", {"DIRECTORY": "state"}, code=1, says="delete"),
    Command(
        "apply --file FILE --diff --prune --prune-prefix PREFIX --set-passwords",
        {"FILE": "state/state.toml", "PREFIX": "applied"},
        says="1 unchanged",
    ),
    Command("topic create orders-restored --partitions 3"),
    Command("acl add --allow User:CN=alice -o write --topic orders", says="1 ACL added"),
    Command("cluster snapshot cluster.json", says="passwords of users"),
    Command("cluster snapshot FILE", {"FILE": "cluster.json"}, says="not included"),
    Command("cluster restore cluster.json", says="unchanged"),
    Command("cluster restore FILE --diff --group-offsets", {"FILE": "cluster.json"}, says="unchanged"),
    Command("--json topic list", says="orders-restored"),
    Command("--json config describe --topic orders --changed", says="settings"),
    Command("--json acl list", says="CN=alice"),
    Command("--json group describe GROUP", {"GROUP": "tellers"}, says="group_id"),
    Command("--json quota list", says="["),
    Command("--json user list", says="["),
    Command("log dump PATH --records"),
    Command("log dump DIRECTORY"),
    Command(
        "certs create DIR --node NAME=HOST,HOST --client NAME --days 365",
        {"DIR": "certificates", "NAME=HOST,HOST": "node-0=localhost,127.0.0.1", "NAME": "alice"},
    ),
)

ONCE_STOPPED = (
    Command("quorum reset-epoch DIRECTORY", says="nothing was changed"),
    Command("quorum reset-epoch DIRECTORY --after 1", {"1": "1000"}),
)
"""Commands for stopped nodes."""

ARCHIVES = "needs an object store; tests/spark/test_archive.py archives into a folder"
DELETES = "deletes what the other steps read; tests/client/test_cli.py runs it"
NOT_RUN = {
    "up": STARTS,
    "up --nodes 3": STARTS,
    "up --nodes 3 --data DIRECTORY": STARTS,
    "up --tiered": STARTS,
    "up --nodes 3 --data DIR --port 9092 --tiered": STARTS,
    "node run --config FILE": STARTS,
    "node probe HOST:PORT --ready": "as tidelog-probe, of which docs/operations.md speaks",
    "topic delete-records NAME -o 0=1000 -o 1=latest": DELETES,
    "topic delete-records NAME -o 0=1000 --before TIME -p 1": DELETES,
    "topic delete-records NAME -o 0=1000 --all -p 1": DELETES,
    "--tls-ca FILE --tls-cert FILE --tls-key FILE topic list": SECURED,
    "docs/client.md: TLS": SECURED,
    "docs/client.md: Schema registry": "needs a registry: tests/client/test_schema_registry.py has one",
    "top": "runs until it is interrupted; with --times it is run here",
    "docs/client.md: Users and tokens": SECURED,
    "apply": NAMED,
    "acl add": NAMED,
    "acl add --topic NAME": NAMED,
    "txn abort": NAMED,
    "partition elect --unclean": NAMED,
    "job archive": NAMED,
    "job audit": NAMED,
    "job restore": NAMED,
    "log dump PATH": "`log dump DIRECTORY` is the same",
    "log dump /var/lib/tidelog/data": "`log dump DIRECTORY` is the same",
    "job archive --pattern .* --to s3a://bucket/tidelog --continuous": ARCHIVES,
    "job archive --to s3a://bucket/tidelog --verify": ARCHIVES,
    "job restore orders --from s3a://bucket/tidelog --to-topic orders-restored": ARCHIVES,
    "cluster remove-voter 1": "takes a voter that is gone for good out of the quorum: test_quorum_processes.py",
    "txn abort --partition TOPIC-N --start-offset 1": "no write of this version's clients makes a transaction hang",
}


def test_all_that_the_documents_say_to_type_is_run_or_has_a_reason_why_not() -> None:
    run_here = [name for step in (*STORY, *ONCE_STOPPED) for name in names_of(step)]
    assert sorted([*run_here, *NOT_RUN]) == sorted(written(DOCUMENTS))


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_wheel_does_what_the_documents_say(wheel: Path, tmp_path: Path) -> None:
    """A minute and more: it installs the wheel, starts three nodes, and each of some eighty steps is a
    process that imports the client."""
    installed = install(wheel, tmp_path)
    with up(installed) as running:
        faults = [fault_of(step, running) for step in STORY]
    faults += [fault_of(step, installed) for step in ONCE_STOPPED]
    found = [fault for fault in faults if fault]
    assert not found, "\n\n".join(found)
