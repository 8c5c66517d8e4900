"""The web console over HTTP: what it shows, what it changes, and whom it lets."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from node.listeners.http.console_listener import OPEN_MAX
from node.listeners.http.http_tls import HttpTls
from node.security.principals import parse_rules
from tests.certificates import Authority
from tests.node.console_users import ALL, CLUSTER, allow, with_alice
from tests.node.console_world import Browser, console
from tests.node.kafka_tls_clients import client_of
from tests.node.real_nodes import CALL_MS, OPERATOR, RealNode, real_nodes
from tests.node.sasl_nodes import ALICE, transport_of
from tidelog import Admin, Consumer, Producer
from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.query_notes import EntryNote
from tidelog.clock import MachineClock
from tidelog.errors import ClusterAuthorizationFailed
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import behalf
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.acls import AclOperation
from tidelog.types import Millis, NodeId, Offset


async def test_a_visitor_reads_cluster_topics_and_records_of_every_node(tmp_path: Path) -> None:
    """Three nodes: the partitions have leaders on all of them, and one console shows them all."""
    async with real_nodes(tmp_path, 3) as nodes:
        bootstrap = ",".join(map(str, nodes.addresses))
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic("orders", partitions=3, replication_factor=3)
            for partition in range(3):
                await producer.send("orders", b'{"id": %d, "ok": true}' % partition, key=b"k", partition=partition)
                await producer.send("orders", b"\x00\xff", partition=partition)
        async with console(nodes) as browser:
            cluster = await browser.open("/")
            assert cluster.status == 200, cluster.text
            assert "Every partition can be read and written." in cluster.text
            assert "orders" in (await browser.open("/topics")).text
            topic = await browser.open("/topic?name=orders")
            assert topic.status == 200, topic.text
            for partition in range(3):
                records = await browser.open(f"/records?name=orders&partition={partition}&from=start")
                assert records.status == 200, records.text
                assert f"&quot;id&quot;: {partition}" in records.body
                assert "00 ff" in records.text
            found = await browser.open("/records?name=orders&partition=1&from=start&key=k")
            assert "00 ff" not in found.text
            assert "&quot;id&quot;: 1" in found.body
            for path in ("/groups", "/transactions", "/acls", "/spark", "/live", "/live/charts"):
                assert (await browser.open(path)).status == 200, path


def tls_of(authority: Authority) -> HttpTls:
    """Of the port: it asks for certificates of this authority."""
    rules = parse_rules("RULE:^CN=(.*)$/$1/")
    return HttpTls("GRPC_SSL", replace(authority.node(), mapping_rules=rules), MachineClock())


async def test_a_user_logs_in_creates_a_topic_moves_an_offset_and_deletes_it_each_after_a_confirmation(
    tmp_path: Path,
) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        assert "alice" in (await browser.log_in("alice", "tulip")).text

        form = await browser.open("/topic/create")
        asked = await browser.fill(form, "/topic/create", name="fresh", partitions="2", settings="retention.ms=1000")
        assert "The topic fresh is created with 2 partitions" in asked.text
        assert "Its setting retention.ms is 1000." in asked.text
        assert "fresh" not in (await browser.open("/topics")).text, "it is only described"
        assert "The topic is created" in (await browser.fill(asked, "/topic/create")).text
        assert "fresh" in (await browser.open("/topics")).text

        unwritable = {"name": "unwritable", "partitions": "1", "replicas": "1", "settings": "min.insync.replicas=2"}
        asked = await browser.fill(form, "/topic/create", **unwritable)
        assert "Warning: topic unwritable has min.insync.replicas=2, but" in asked.text, asked.text

        form = await browser.open("/group/reset?id=readers")
        asked = await browser.fill(form, "/group/reset", topic="orders", to="offset", at="2")
        assert "orders-0 - 2" in asked.text
        assert "The offsets are set" in (await browser.fill(asked, "/group/reset")).text
        assert "orders-0 2 0 3 1" in (await browser.open("/group?id=readers")).text

        form = await browser.open("/topic/reassign?name=orders")
        for lines, says in (
            ("0: 7", "7"),
            ("0: 0\n0: 0", "two lines"),
            ("0: 0", "stays where it is"),
            ("9: 0", "no partition 9"),
            ("0: 99999999999", "99999999999"),
            ("0", "names no replicas"),
        ):
            refused = await browser.fill(form, "/topic/reassign", replicas=lines)
            if refused.status == 200:  # the cluster judges it
                refused = await browser.fill(refused, "/topic/reassign")
            assert (refused.status in (400, 409), says in refused.text) == (True, True), (lines, refused.text)
        refused = await browser.fill(
            await browser.open("/topic/create"), "/topic/create", name="a", partitions="9" * 12
        )
        assert refused.status == 400, refused.text

        asked = await browser.open("/topic/delete?name=orders")
        assert "All its records are lost: 3 offsets." in asked.text
        assert "you did not type" in (await browser.fill(asked, "/topic/delete", typed="order")).text
        assert "is deleted" in (await browser.fill(asked, "/topic/delete", typed="orders")).text
        assert (await browser.open("/topic?name=orders")).status == 404

        changes = [event for event in map(json.loads, nodes.audit) if event.get("principal") == "User:alice"]
        made = {each.get("request") for each in changes}
        assert {"Admin.CreateTopics", "Admin.DeleteTopics"} <= made, changes


async def test_a_confirmation_does_nothing_to_a_topic_that_has_been_created_again(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        asked = await browser.open("/topic/delete?name=orders")
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.delete_topic("orders")
            await admin.create_topic("orders", partitions=1, replication_factor=1)
        refused = await browser.fill(asked, "/topic/delete", typed="orders")
        assert refused.status in (404, 409), refused.text
        assert (await browser.open("/topic?name=orders")).status == 200


async def test_permissions_are_the_users_own(tmp_path: Path) -> None:
    """alice may describe the topic, and neither read nor delete it. The refusals are in the audit log under her name,
    with the address of her browser."""
    async with with_alice(tmp_path, allow(AclOperation.DESCRIBE, name="orders")) as nodes, console(nodes) as browser:
        assert (await browser.open("/topics")).text.count("orders") == 0, "a stranger may see nothing"
        await browser.log_in("alice", "tulip")
        assert "orders" in (await browser.open("/topics")).text
        refused = await browser.open("/records?name=orders")
        assert (refused.status, "TOPIC_AUTHORIZATION_FAILED" in refused.text) == (403, True)
        asked = await browser.open("/topic/delete?name=orders")
        assert (await browser.fill(asked, "/topic/delete", typed="orders")).status == 403
        assert (await browser.open("/acls")).status == 403
        denied = [event for event in map(json.loads, nodes.audit) if event["event"] == "denied"]
        named = {(each["request"], each["principal"]) for each in denied}
        assert ("Data.Fetch", "User:alice") in named, denied
        assert ("Admin.DeleteTopics", "User:alice") in named, denied


async def test_the_form_of_a_move_marks_the_nodes_that_take_no_replicas(tmp_path: Path) -> None:
    rules = allow(AclOperation.DESCRIBE), allow(AclOperation.ALL, *CLUSTER)
    async with with_alice(tmp_path, *rules, count=2) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        assert "Nodes: 0, 1" in (await browser.open("/topic/reassign?name=orders")).text
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.cordon_node(1)
        await nodes.wait_until(lambda: nodes.nodes[0].node.image.nodes[NodeId(1)].cordoned)  # type: ignore[union-attr]
        assert "Nodes: 0, 1 (alive, cordoned)" in (await browser.open("/topic/reassign?name=orders")).text


async def test_another_node_decides_by_the_visitors_permissions_and_not_by_those_of_the_node_that_asks(
    tmp_path: Path,
) -> None:
    """The partition moves to the other node; the console asks there in the name of alice, who may move and describe
    it, and not read it."""
    rules = allow(AclOperation.DESCRIBE), allow(AclOperation.ALL, *CLUSTER)
    async with with_alice(tmp_path, *rules, count=2) as nodes:
        here = next(number for number, each in nodes.nodes.items() if _leads(each, "orders"))
        there = 1 - here
        async with console(nodes, here) as browser:
            await browser.log_in("alice", "tulip")
            form = await browser.open("/topic/reassign?name=orders")
            asked = await browser.fill(form, "/topic/reassign", replicas=f"0: {there}")
            assert f"0 {here} {there} {there} {here}" in asked.text
            assert "1 replicas are copied" in asked.text
            assert "The replicas move" in (await browser.fill(asked, "/topic/reassign")).text
            await nodes.wait_until(lambda: _leads(nodes.nodes[there], "orders"))
            assert "orders" in (await browser.open("/topic?name=orders")).text
            refused = await browser.open("/records?name=orders&from=start")
            assert (refused.status, "User:alice" in refused.text) == (403, True), refused.text
        denied = [event for event in map(json.loads, nodes.audit) if event["event"] == "denied"]
        found = {(each["node"], each["request"], each["principal"]) for each in denied}
        assert found == {(here, "Admin.DescribeConfigs", "User:alice"), (there, "Data.Fetch", "User:alice")}
        assert all(each["address"].startswith("127.0.0.1:") for each in denied), "that of the browser, not of a node"


def _leads(found: RealNode, topic: str) -> bool:
    replica = None if found.node.replicas is None else found.node.replicas.registry.find(topic, 0)
    return replica is not None and replica.leader is not None


async def test_members_transactions_and_queries_of_spark_are_shown_as_they_run(tmp_path: Path) -> None:
    async with real_nodes(tmp_path) as nodes:
        bootstrap = str(nodes.addresses[0])
        async with Admin(bootstrap) as admin:
            topic_id = await admin.create_topic("orders", partitions=1, replication_factor=1)
            made = MachineClock().wall_ms() - 3 * 3_600_000
            note = EntryNote("progress", "lineage", "digest", topic_id, Millis(made)).to_text()
            async with (
                Producer(bootstrap, transactional_id="spark-source-query") as query,
                Producer(bootstrap, transactional_id="loader") as loader,
                Consumer(
                    bootstrap, group="readers", topics=["orders"], client_id="billing", isolation="read_committed"
                ) as consumer,
                console(nodes) as browser,
            ):
                async with query.transaction() as transaction:
                    await transaction.send_offsets({("orders", 0): CommittedOffset(Offset(0), metadata=note)}, "query")
                async with loader.transaction():
                    await loader.send("orders", b"not yet", partition=0)
                    ongoing = await browser.open("/transactions?state=Ongoing")
                    assert "loader Ongoing" in ongoing.text and "query" not in ongoing.text
                    assert "orders-0" in (await browser.open("/transaction?id=loader")).text
                    found = await browser.open("/records?name=orders")
                    assert "0 in a transaction" in found.text
                while not await consumer.poll(timeout=0.1):  # what is committed has its marker in the log
                    pass
                member = await browser.open("/group?id=readers")
                assert "billing" in member.text and "1 members" in member.text
                spark = await browser.open("/spark")
                assert "1 streaming queries" in spark.text and "query 3 hours ago 1 2" in spark.text, spark.text


async def test_a_wrong_password_is_delayed_recorded_and_opens_nothing(tmp_path: Path) -> None:
    async with with_alice(tmp_path) as nodes, console(nodes) as browser:
        for user, password in (("alice", "rose"), ("nobody", "tulip"), ("__cluster", "tulip"), ("alice", "")):
            refused = await browser.log_in(user, password)
            assert (refused.status, browser.cookies) == (401, {}), refused.text
        failed = [event for event in map(json.loads, nodes.audit) if event["event"] == "authentication_failed"]
        assert (failed[0]["claimed_user"], failed[0]["listener"]) == ("alice", "CONSOLE"), failed


async def test_a_session_ends_with_the_logout_and_with_the_password(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes, strangers=False) as browser:
        assert "Log in" in (await browser.open("/topics")).text, "a stranger has to log in"
        page = await browser.log_in("alice", "tulip")
        kept = dict(browser.cookies)
        await browser.fill(page, "/logout")
        assert browser.cookies == {}
        browser.cookies = kept
        assert "Password" in (await browser.open("/topics")).text, "the session itself has ended"
        browser.cookies = {}
        await browser.log_in("alice", "tulip")
        assert "orders" in (await browser.open("/topics")).text
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.set_password("alice", "lily", iterations=4_096)
        await nodes.wait_until(lambda: not nodes.nodes[0].node.sasl.sessions.of("alice"))
        assert "Password" in (await browser.open("/topics")).text


async def test_over_https_a_certificate_says_who_the_visitor_is_and_none_is_required(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes, strangers=False, tls=tls_of(authority)) as browser:
        browser.tls = client_of(authority.client("alice"))
        page = await browser.open("/topics")
        assert ("alice" in page.text, "Create a topic" in page.text) == (True, True), page.text
        form = await browser.open("/topic/create")
        asked = await browser.fill(form, "/topic/create", name="fresh", partitions="1", replicas="1")
        assert "The topic is created" in (await browser.fill(asked, "/topic/create")).text

        browser.tls = client_of(authority.client("alice"), has_certificate=False)
        assert "Password" in (await browser.open("/topics")).text
        assert "alice" in (await browser.log_in("alice", "tulip")).text
        assert (await browser.ask("/metrics")).status == 200, "a scraper needs neither"

        browser.cookies = {}
        browser.tls = client_of(authority.client("late", age_days=2))
        with pytest.raises((ssl.SSLError, OSError, IndexError)):
            await browser.open("/topics")


async def test_only_a_node_asks_on_behalf_of_others(tmp_path: Path) -> None:
    """A client that names somebody in the metadata of its call is refused, whatever its own identity."""
    async with with_alice(tmp_path) as nodes, transport_of(ALICE) as alice, transport_of(None) as operator:
        for transport, address in ((alice, nodes.outside[0]), (operator, nodes.further[OPERATOR][0])):
            with pytest.raises(ClusterAuthorizationFailed, match="only a node may ask on behalf of others"):
                await transport.call_for(
                    behalf(f"User:{OPERATOR}", "127.0.0.1", "127.0.0.1:40000"),
                    address,
                    methods.ADMIN_DESCRIBE_CLUSTER,
                    admin_pb2.DescribeClusterRequest(),
                    timeout_ms=CALL_MS,
                )


async def test_other_sites_can_neither_send_forms_nor_have_pages(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        asked = await browser.open("/topic/delete?name=orders")
        (form,) = [each for each in asked.forms if each.action == "/topic/delete"]
        good = {**form.fields, "typed": "orders"}
        for fields, headers in (
            ({**good, "form_token": ""}, {}),
            ({**good, "form_token": "0" * 64}, {}),
            (good, {"Origin": "http://evil.example"}),
            (good, {"Origin": "null"}),
            (good, {"Sec-Fetch-Site": "cross-site"}),
            (good, {"Sec-Fetch-Site": "same-site"}),
        ):
            assert (await browser.ask("/topic/delete", form=fields, headers=headers)).status == 403
        rebound = Browser(browser.address, browser.cookies, host="evil.example")
        assert (await rebound.ask("/topics")).status == 421
        assert (await Browser(browser.address, {}).ask("/topic/delete", form=good)).status == 403, "a stranger"
        assert "orders" in (await browser.open("/topics")).text, "nothing was changed"
        answer = await browser.open("/topics")
        assert answer.headers["Cache-Control"] == "no-store"
        allowed = answer.headers["Content-Security-Policy"]
        assert "unsafe" not in allowed and "default-src 'none'" in allowed
        assert " style=" not in answer.body and " onclick" not in answer.body


async def test_names_and_records_never_become_markup(tmp_path: Path) -> None:
    hostile = '"><script>alert(1)</script>\x1b[2J\u202e'
    async with real_nodes(tmp_path) as nodes:
        bootstrap = str(nodes.addresses[0])
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            record = json.dumps({hostile: hostile}).encode()
            headers = [(hostile, hostile.encode())]
            await producer.send("orders", record, key=hostile.encode(), partition=0, headers=headers)
            await admin.alter_group_offsets(hostile, {("orders", 0): 0})
        async with console(nodes) as browser:
            pages = [
                await browser.open("/records?name=orders&from=start"),
                await browser.open("/groups"),
                await browser.open(f"/group?{urlencode({'id': hostile})}"),
                await browser.open(f"/records?{urlencode({'name': 'orders', 'key': hostile})}"),
                await browser.open(f"/topic?{urlencode({'name': hostile})}"),
            ]
            for page in pages:
                assert "<script>alert" not in page.body
                assert "\x1b" not in page.body and "\u202e" not in page.body
                assert page.status in (200, 400, 404), page.text
            assert all("&lt;script&gt;" in page.body for page in pages[:3])


FORM = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
REQUESTS = [
    (b"GET / HTTP/1.1\r\n\r\n", 421),
    (b"nonsense\r\n\r\n", 400),
    (b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    (b"GET /?a=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", 400),
    (b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (FORM + b"Content-Length: 99999999999999999999999\r\n\r\n", 400),
    (FORM + b"Content-Length: " + b"0" * 20 + b"1000000\r\n\r\n", 400),
    (FORM + b"Content-Length: " + b"0" * 5000 + b"\r\n\r\n", 400),
    (FORM + b"Content-Length: -1\r\n\r\n", 400),
    (FORM + b"Transfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET /records?name=orders&partition=99999999999999 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    (b"GET /records?name=orders&partition=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    (b"GET /records?name=orders&from=time&at=yesterday HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /records?name=orders&from=offset&at=99999999999999999999 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\n\r\n", 200),
    (b"HEAD /topics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
]


async def test_forms_that_arrive_byte_by_byte_keep_no_page_from_others(tmp_path: Path) -> None:
    async with real_nodes(tmp_path) as nodes, console(nodes) as browser:
        slow = [await asyncio.open_connection(browser.address.host, browser.address.port) for _ in range(OPEN_MAX)]
        for _, writer in slow:
            writer.write(FORM + b"Content-Length: 100\r\n\r\nuser=")
            await writer.drain()
        assert (await browser.open("/")).status == 200
        for _, writer in slow:
            writer.close()


async def test_malformed_requests_have_answers_that_say_so(tmp_path: Path) -> None:
    async with real_nodes(tmp_path) as nodes, console(nodes) as browser:
        async with Admin(str(nodes.addresses[0])) as admin:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
        for request, status in REQUESTS:
            answer = await browser.send(request)
            assert answer.status == status, (request, answer.body)
            assert "defect" not in answer.body
