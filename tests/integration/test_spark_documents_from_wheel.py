"""What the documents of Spark, jobs, audits and security say to type works from the wheel alone: their commands, their
Python and their SQL, with the Spark of this machine, against `tidelog up` of the same wheel.

`STORY` is their order, with values for the words that stand for one; `NOT_RUN` says why the others are left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.document_steps import (
    NAMED,
    SECURED,
    STARTS,
    Cell,
    Command,
    Notebook,
    Presupposed,
    Python,
    Step,
    fault_of,
    install,
    names_of,
    up,
    written,
)

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DOCUMENTS = ("docs/spark.md", "docs/jobs.md", "docs/audit.md", "docs/security.md")
PATHS = {"/data/archive": "archive", "/data/logs": "logs"}

LOGS = """\
async with tidelog.Admin("host:9192") as admin:
    await admin.create_topic("logs-web")
async with tidelog.Producer("host:9192") as producer:
    await producer.send("logs-web", b"GET /")
    print("logged")
"""

IN_A_THREAD = """\
import threading
thread = threading.Thread(target=write_in_a_thread, args=(spark.createDataFrame([("of a thread",)], "value string"),))
thread.start()
thread.join()
"""
ANOTHER_ORDER = """\
another = spark.createDataFrame([("another order",)], "value string").write.format("tidelog").mode("append")
another.options(**{**options, "topic": "orders"}).save()
query.processAllAvailable()
"""
IN_EACH_BATCH = """\
write(spark.createDataFrame([("enriched",)], "value string"), 0)
out = spark.read.format("tidelog").options(**{"tidelog.bootstrap.servers": "localhost:9192"})
for topic in ("orders-out", "orders-enriched"):
    rows = out.option("subscribe", topic).load().selectExpr("cast(value as string)").collect()
    print(topic, sorted(row.value for row in rows))
"""

FRIDAY = """\
from tidelog import sync
with sync.Admin("localhost:9192") as admin:
    admin.create_topic_snapshot("friday", ["orders"])
"""

SPARK = Notebook(
    "docs/spark.md",
    (
        Cell("Two minutes"),
        Cell("A loaded frame is planned once", behind="print(orders().count(), 'orders')"),
        Cell("A loaded frame is planned once", sql=True),
        Cell("A snapshot", before=FRIDAY, behind="print(frame.count(), 'frozen')"),
        Cell("History from the object store", behind="print(frame.count(), 'from nodes and store')"),
        Cell(
            "DATA_SOURCE_NOT_FOUND",
            before='options = {"tidelog.bootstrap.servers": "localhost:9192", "topic": "orders-out"}',
            behind=IN_A_THREAD,
        ),
        Cell("Streaming", behind=ANOTHER_ORDER),
        Cell(
            "Streaming, 2",
            before="from tidelog.spark import offsets_behind_latest",
            behind="print('behind', behind)\nquery.stop()",
        ),
        Cell("Writing", behind=ANOTHER_ORDER + "query.stop()"),
        Cell("What is promised", behind=IN_EACH_BATCH),
    ),
    says="orders-enriched ['enriched']",
)

STORY: tuple[Step, ...] = (
    Command("topic create orders"),
    Command("topic create orders -p 3 -r 3", {"orders": "orders-enriched"}),
    Command("topic create orders --replicas 3", {"orders": "payments"}),
    Command("topic create orders-out"),
    Command("produce orders", more="--input lines", says="60 records acknowledged"),
    Command("cluster status"),
    Command("topic list", says="orders-out"),
    Command("spark check", says="all is well"),
    Command("spark check --bootstrap localhost:9192", says="all is well"),
    Command("spark check --master spark://host:7077", {"spark://host:7077": "local[1]"}, says="all is well"),
    SPARK,
    Command("group lag orders-to-parquet"),
    Command("group lag NAME", {"NAME": "orders-to-orders-out"}),
    Command("txn list", says="spark-sink-"),
    Command("job archive orders --to /data/archive", PATHS),
    Command("python -m tidelog.jobs.archive orders --to /data/archive", PATHS),
    Command("job archive --to /data/archive --verify", PATHS),
    Command("topic create orders-restored --partitions 3"),
    Command("job restore orders --from /data/archive --to-topic orders-restored", PATHS),
    Presupposed(LOGS, says="logged"),
    Command(
        "job archive --pattern logs-.* --to /data/logs --continuous",
        PATHS,
        more="--start earliest",
        stopped_by="logs/topic=logs-web/*/*.parquet",
    ),
    Command("job profile orders --html profile.html"),
    Python("docs/audit.md", "Receipts"),
    Command("job audit"),
    Command("job audit orders", says="orders"),
    Command("job audit orders --json"),
    Command("job audit --receipts receipts.jsonl", says="present"),
    Command("job audit --receipts receipts.jsonl --json", says="present"),
    Command("job audit orders --receipts receipts.jsonl", says="present"),
    Command("acl add --allow User:alice -o read -o describe-configs --topic orders"),
    Command("acl add --allow User:alice -o read --group billing"),
    Command("acl add --allow User:bob -o write --topic orders. --prefixed"),
    Command("acl add --allow User:bob -o write --transactional-id billing- --prefixed"),
    Command("acl add --deny User:bob -o all --topic orders.secret"),
    Command("acl list --topic orders.secret", says="User:bob"),
    Command("acl test User:bob write --topic orders.secret", code=1, says="deny"),
    Command("acl remove --principal User:bob"),
    Command("user add alice --password-file FILE"),
    Command("user list", says="alice"),
    Command("user remove alice"),
    Command("quota set producer_byte_rate=10485760 consumer_byte_rate=20971520 --user alice"),
    Command("quota set request_percentage=25 --default-user --default-client-id"),
    Command("quota list", says="alice"),
    Command("quota remove producer_byte_rate --user alice"),
    Command("cluster upgrade"),
    Command(
        "certs create tls --node node-0=node-0.example.org,10.0.0.1 --node node-1=node-1.example.org --client admin",
        {"tls": "tls"},
    ),
    Command("certs create tls --node node=localhost,127.0.0.1"),
    Command("certs create tls --node node=localhost,127.0.0.1 --client admin --client billing"),
)

ONE_PRODUCER = "one line of a program against a cluster with TLS: test_document_commands.py compiles it"
ICEBERG = "needs the package of Iceberg; tests/spark/test_table.py runs the job with it"
NOT_RUN = {
    "job table": NAMED,
    "job table orders --to lake.shop.orders --schema id BIGINT, amount DECIMAL(9,2)": ICEBERG,
    "job table orders --to lake.shop.orders_raw --once": ICEBERG,
    "docs/jobs.md: table": ICEBERG,
    "docs/jobs.md: SQL of table": ICEBERG,
    "up": STARTS,
    "acl add": NAMED,
    "produce": NAMED,
    "txn abort": NAMED,
    "spark check --master -b": NAMED,
    "user add alice": "asks at a terminal: `user add alice --password-file FILE` is the same without one",
    "--sasl-username $name --sasl-password-file $name.secret topic list": SECURED,
    "--sasl-username cluster --sasl-password-file /run/secrets/cluster user add admin": SECURED,
    "--tls-ca tls/ca.pem --tls-cert tls/admin.pem --tls-key tls/admin.key cluster status": SECURED,
    "docs/security.md: Authentication by SASL": ONE_PRODUCER,
    "docs/security.md: Tokens of an identity provider": ONE_PRODUCER,
    "spark-submit --master spark://host:7077 \"$(python -c 'import tidelog.jobs.archive as m; print(m.__file__)')\" "
    "orders --to s3a://bucket/archive": "needs a Spark cluster and an object store; the line above it runs the program",
}


def test_all_that_these_documents_say_to_type_is_run_or_has_a_reason_why_not() -> None:
    run_here = [name for step in STORY for name in names_of(step)]
    assert sorted([*run_here, *NOT_RUN]) == sorted(written(DOCUMENTS))


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_the_wheel_and_spark_do_what_the_documents_say(wheel: Path, tmp_path: Path) -> None:
    """Some four minutes: it installs the wheel, starts three nodes, and ten of the steps start Spark."""
    with up(install(wheel, tmp_path)) as running:
        faults = [fault_of(step, running) for step in STORY]
    found = [fault for fault in faults if fault]
    assert not found, "\n\n".join(found)
