"""Quarkus's Dev UI for Kafka shows nodes, topics, records, groups and ACLs, by what its pages ask and in a browser."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import admin

from node.process.free_ports import free_ports
from node.process.local_cluster import HOST
from tests.kafka_ecosystem.programs import BUILT, Failed, Row, committed, outcome, running, wait_until, write
from tests.kafka_ecosystem.web_socket import JsonRpc, Refused
from tests.kafka_suites.suite import PARTITIONS, Effort, Nodes, Outcome, Suite, Verdict

_HOME: Final = BUILT / "dev-ui"
_MAVEN: Final = _HOME / "apache-maven" / "bin" / "mvn"
_RECORDS_MAX: Final = 1_000
_READ: Final = 10
"""Records that the group has committed."""
_TEXT_OF_PAGE: Final = """
(function text(node) {
  const own = node.nodeType === Node.TEXT_NODE ? [node.data.trim()] : [];
  const inner = [...(node.shadowRoot?.childNodes ?? []), ...node.childNodes];
  return [...own, ...inner.filter((each) => each.nodeName !== "STYLE").map(text)].filter(Boolean).join("\\n");
})(document.body)
"""
"""Its elements have their text in trees of their own."""


def _missing() -> str:
    return "" if _MAVEN.exists() else "it is not fetched: `make kafka-ecosystem` does, with Maven"


class _DevUi(NamedTuple):
    """The application in development mode."""

    process: Popen[bytes]
    log: Path
    port: int
    rpc: JsonRpc

    def ask(self, method: str, **params: object) -> Any:
        """What a page asks for. Raises Failed."""
        try:
            return self.rpc.ask(f"quarkus-kafka-client_{method}", **params)["object"]
        except Refused as error:
            raise Failed(str(error)) from error

    def topics(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.ask("getTopics")}


@contextmanager
def _started(cluster: Nodes, home: Path) -> Iterator[_DevUi]:
    (port,) = free_ports(1)
    settings = {
        "kafka.bootstrap.servers": cluster.kafka_bootstrap,
        "quarkus.http.host": HOST,
        "quarkus.http.port": port,
        "quarkus.kafka.devservices.enabled": "false",  # it would start a broker in a container
        "quarkus.analytics.disabled": "true",
        "quarkusRegistryClient": "false",  # it would ask the Internet for extensions
        "debug": "false",
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    command: list[str | Path] = ["sh", _MAVEN, "-B", "-ntp", "-f", _HOME / "pom.xml", *options, "quarkus:dev"]
    log = home / "dev-ui.log"
    connections: list[JsonRpc] = []

    def has_started() -> bool:
        with suppress(OSError, Refused):
            connections.append(JsonRpc(port, "/q/dev-ui/json-rpc-ws"))
        return bool(connections)

    with running(command, log) as process:
        try:
            wait_until(has_started, process, log)
            with connections[0] as rpc:
                yield _DevUi(process, log, port, rpc)
        finally:
            process.terminate()  # after kill -9 of Maven the application would run on
            process.wait(60)


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    records = min(effort.records, _RECORDS_MAX)
    write(cluster, "records", (f"record {number}" for number in range(records)))
    with _started(cluster, home) as ui:
        yield outcome("nodes and topics", lambda: _look(cluster, ui, records))
        yield outcome("a group has its lag", lambda: _lag(cluster, ui, records))
        yield outcome("an ACL is shown", lambda: _acl(cluster, ui))
        yield outcome("a topic is created and deleted", lambda: _administer(cluster, ui))
        yield outcome("a record is written once and read", lambda: _write(cluster, ui))
        browser = shutil.which("chromium")
        if browser is None:
            yield Outcome("its page in a browser", Verdict.SKIPPED, 0, "there is no chromium")
        else:
            yield outcome("its page in a browser", lambda: _browse(browser, ui, home))


def _look(cluster: Nodes, ui: _DevUi, records: int) -> None:
    nodes = {f"{each['host']}:{each['port']}" for each in ui.ask("getInfo")["clusterInfo"]["nodes"]}
    if nodes != set(cluster.kafka_bootstrap.split(",")):
        raise Failed(f"it sees the nodes {nodes}")
    topic = ui.topics()["records"]
    if (topic["partitionsCount"], topic["nmsg"]) != (PARTITIONS, records):
        raise Failed(f"there are {PARTITIONS} partitions with {records} records, and it sees {topic}")


def _lag(cluster: Nodes, ui: _DevUi, records: int) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe(["records"])
        for _ in range(_READ):
            (message,) = consumer.consume(1, 60)
            consumer.commit(message, asynchronous=False)
        (group,) = ui.ask("getInfo")["consumerGroups"]
        (member,) = group["members"]
        seen = (group["name"], group["state"], group["lag"], len(member["partitions"]))
        if seen != ("readers", "STABLE", records - _READ, PARTITIONS):
            raise Failed(f"a member has read {_READ} of {records} records, and it sees {group}")


def _acl(cluster: Nodes, ui: _DevUi) -> None:
    rule = admin.AclBinding(
        admin.ResourceType.TOPIC,
        "records",
        admin.ResourcePatternType.LITERAL,
        "User:billing",
        "*",
        admin.AclOperation.READ,
        admin.AclPermissionType.ALLOW,
    )
    client = admin.AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    client.create_acls([rule])[rule].result(60)
    wait_until(lambda: bool(ui.ask("getAclInfo")["entries"]), ui.process, ui.log, 30)
    (entry,) = ui.ask("getAclInfo")["entries"]
    seen = (entry["principal"], entry["operation"], entry["perm"])
    if seen != ("User:billing", "READ", "ALLOW") or "records" not in entry["pattern"]:
        raise Failed(f"it sees the rule {entry}")


def _administer(cluster: Nodes, ui: _DevUi) -> None:
    """It awaits neither the creation nor the deletion of a topic, and then asks for what it has listed."""
    ui.ask("createTopic", topicName="made", partitions=3, replications=3, configs={"retention.ms": "60000"})
    wait_until(lambda: _lists(ui, "made"), ui.process, ui.log, 30)
    if ui.ask("getPartitions", topicName="made") != [0, 1, 2]:
        raise Failed(f"it sees the partitions {ui.ask('getPartitions', topicName='made')}")
    topic = admin.ConfigResource(admin.ResourceType.TOPIC, "made")
    client = admin.AdminClient({"bootstrap.servers": cluster.kafka_bootstrap})
    if client.describe_configs([topic])[topic].result(60)["retention.ms"].value != "60000":
        raise Failed("the topic does not have the setting that it was created with")
    with suppress(Failed):
        ui.ask("deleteTopic", topicName="made")
    wait_until(lambda: not _lists(ui, "made", unknown=True), ui.process, ui.log, 30)


def _lists(ui: _DevUi, topic: str, *, unknown: bool = False) -> bool:
    """unknown: the result while one node has the topic and another one has not."""
    try:
        return topic in ui.topics()
    except Failed:
        return unknown


def _write(cluster: Nodes, ui: _DevUi) -> None:
    page = ui.ask("createMessage", topicName="one", partition=1, key="k", value="v", headers={"h": "x"})
    (message,) = page["messages"]
    if (message["partition"], message["key"], message["value"], message["headers"]) != (1, "k", "v", {"h": "x"}):
        raise Failed(f"it reads {message}")
    if committed(cluster, "one") != [Row("k", "v")]:
        raise Failed(f"it has written {committed(cluster, 'one')}")


def _browse(browser: str, ui: _DevUi, home: Path) -> None:
    (port,) = free_ports(1)
    page = f"http://{HOST}:{ui.port}/q/dev-ui/quarkus-kafka-client/topics"
    own = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home / 'browser'}")
    log = home / "chromium.log"
    with running([browser, *own, f"--remote-debugging-port={port}", page], log) as process:
        wait_until(lambda: bool(_pages(port)), process, log)
        with JsonRpc(port, f"/devtools/page/{_pages(port)[0]}") as tab:
            wait_until(lambda: {"records", "one"} <= set(_text(tab).split("\n")), process, log)


def _pages(port: int) -> list[str]:
    """The ids of the browser's pages; none while it starts."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/json/list", timeout=60) as answer:
            return [each["id"] for each in json.load(answer) if each["type"] == "page"]
    except OSError:
        return []


def _text(tab: JsonRpc) -> str:
    """What the page shows; nothing while it loads."""
    return str(tab.ask("Runtime.evaluate", expression=_TEXT_OF_PAGE)["result"].get("value", ""))


DEV_UI: Final = Suite(
    "dev-ui",
    _missing,
    _run,
    ("records", "one"),
    settings={"authorizer.class.name": "StandardAuthorizer", "super.users": ["User:ANONYMOUS"]},
)
