"""A confirmation of the web console changes exactly what it has described, or nothing."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from tests.node.console_users import ALL, with_alice
from tests.node.console_world import console
from tests.node.real_nodes import OPERATOR
from tidelog import Admin


async def test_a_group_whose_id_has_line_breaks_and_spaces_is_the_one_that_is_changed(tmp_path: Path) -> None:
    """Its neighbours have the id without the spaces, and the one that a page shows."""
    strange = " readers\nof\x1borders "
    others = strange.strip(), strange.replace("\n", "\r\n"), " readers\\nof\\u001borders "
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            for group in (strange, *others):
                await admin.alter_group_offsets(group, {("orders", 0): 3})
            form = await browser.open(f"/group/reset?{urlencode({'id': strange})}")
            asked = await browser.fill(form, "/group/reset", to="offset", at="1")
            assert "orders-0 3 1" in asked.text, asked.text
            assert "The offsets are set" in (await browser.fill(asked, "/group/reset")).text
            found = {group: (await admin.list_group_offsets(group))[("orders", 0)] for group in (strange, *others)}
        assert {group: each and each.offset for group, each in found.items()} == {
            strange: 1,
            **dict.fromkeys(others, 3),
        }


async def test_several_settings_of_a_new_topic_are_several_after_the_confirmation(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        settings = "retention.ms=1000\ncleanup.policy=compact"
        asked = await browser.fill(
            await browser.open("/topic/create"), "/topic/create", name="fresh", partitions="1", settings=settings
        )
        assert "The topic is created" in (await browser.fill(asked, "/topic/create")).text
        page = await browser.open("/topic?name=fresh")
        assert "cleanup.policy compact this topic" in page.text and "retention.ms 1000 this topic" in page.text


async def test_replicas_that_were_moved_meanwhile_are_not_moved_by_an_old_confirmation(tmp_path: Path) -> None:
    """Two operators at once: what the second one has confirmed would copy and remove other replicas than shown."""
    async with with_alice(tmp_path, *ALL, count=2) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            [partition] = (await admin.describe_topic("orders")).partitions
            [here] = partition.replicas
            form = await browser.open("/topic/reassign?name=orders")
            asked = await browser.fill(form, "/topic/reassign", replicas=f"0: {1 - here}")
            await admin.reassign({("orders", 0): [here, 1 - here]})
            while len((await admin.describe_topic("orders")).partitions[0].isr) < 2:
                pass
            refused = await browser.fill(asked, "/topic/reassign")
            assert (refused.status, "nothing was changed" in refused.text) == (400, True), refused.text
            assert f"the replicas of orders-0 were {here}, now {here}, {1 - here}" in refused.text
            assert not await admin.list_reassignments()

            asked = await browser.fill(
                await browser.open("/topic/reassign?name=orders"), "/topic/reassign", replicas="0: 0"
            )
            await admin.delete_topic("orders")
            await admin.create_topic("orders", partitions=1, replication_factor=2)
            refused = await browser.fill(asked, "/topic/reassign")
            assert (refused.status, "was deleted and created again" in refused.text) == (400, True), refused.text
            assert not await admin.list_reassignments()


async def test_offsets_that_were_committed_meanwhile_are_not_set_by_an_old_confirmation(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.alter_group_offsets("readers", {("orders", 0): 1})
            form = await browser.open("/group/reset?id=readers")
            asked = await browser.fill(form, "/group/reset", to="earliest")
            await admin.alter_group_offsets("readers", {("orders", 0): 3})
            refused = await browser.fill(asked, "/group/reset")
            assert (refused.status, "orders-0 was 1, now 3" in refused.text) == (400, True), refused.text
            asked = await browser.fill(form, "/group/reset", to="earliest")
            await admin.delete_topic("orders")
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            refused = await browser.fill(asked, "/group/reset")
            assert (refused.status, "was deleted and created again" in refused.text) == (400, True), refused.text
