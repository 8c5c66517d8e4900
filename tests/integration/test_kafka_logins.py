"""Programs that use Kafka log in at a node by each mechanism, and operators manage users, ACLs and quotas with them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import pytest
from confluent_kafka import admin as users
from confluent_kafka.admin import AdminClient

import tidelog
from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.node.kafka_frames import kafka_listener
from tests.node.sasl_world import CONFIG, World
from tidelog import sync
from tidelog.clock import MachineClock
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import Millis

pytestmark = pytest.mark.integration

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
WAIT_S = 20.0
LITERAL, ALLOW = PatternType.LITERAL, AclPermission.ALLOW


@dataclass(frozen=True)
class Secured:
    """A node whose listener of Kafka's protocol has SASL_SSL, with the topic orders, which alice may read and write."""

    cluster: LocalCluster
    authority: Authority
    provider: IdentityProvider

    def librdkafka(self, mechanism: str, name: str = "alice", password: str = "tulip") -> dict[str, Any]:
        settings = {
            "bootstrap.servers": self.cluster.kafka_bootstrap,
            "log_level": 0,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority.ca,
            "sasl.mechanism": mechanism,
        }
        if mechanism == "OAUTHBEARER":
            expires_s = MachineClock().wall_ms() / 1_000 + 600
            return {**settings, "oauth_cb": lambda _: (self.provider.token(name), expires_s)}
        return {**settings, "sasl.username": name, "sasl.password": password}

    def aiokafka(self, mechanism: str) -> dict[str, Any]:
        settings = {
            "bootstrap_servers": self.cluster.kafka_bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=self.authority.ca),
            "sasl_mechanism": mechanism,
        }
        if mechanism == "OAUTHBEARER":
            return {**settings, "sasl_oauth_token_provider": _Tokens(self.provider.token())}
        return {**settings, "sasl_plain_username": "alice", "sasl_plain_password": "tulip"}


class _Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("secured")
    authority, provider = Authority(home / "certificates"), IdentityProvider()
    settings = {
        "listener.security.protocol.map": ["KAFKA:SASL_SSL"],
        "sasl.enabled.mechanisms": list(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": provider.write(home / "keys.json"),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": [AUDIENCE],
        "super.users": ["User:ANONYMOUS", "User:admin"],
        "connection.failed.authentication.delay.ms": 50,
        **settings_of(authority.node(requires=False)),
    }
    with LocalCluster(home / "cluster", 1, kafka=True, settings=settings) as started:
        started.wait_healthy(60)
        started.create_topic("orders", 1, 1)
        with sync.Admin(started.bootstrap) as admin:
            for name, password in (("alice", "tulip"), ("admin", "orchid")):
                admin.set_password(name, password, iterations=4_096)
            may = [(ResourceType.TOPIC, "orders", each) for each in (AclOperation.READ, AclOperation.WRITE)]
            may.append((ResourceType.GROUP, "unused", AclOperation.READ))  # librdkafka looks its coordinator up
            admin.create_acls(
                [AclBinding(kind, name, LITERAL, "User:alice", "*", each, ALLOW) for kind, name, each in may]
            )
        yield Secured(started, authority, provider)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_client_writes_and_reads_by_each_mechanism(secured: Secured, mechanism: str) -> None:
    """Also what is longer than the messages of a client that has not logged in may be."""
    value = mechanism.encode() * 10_000

    def story() -> tuple[int, bytes | None]:
        offsets: list[int] = []

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offsets.append(message.offset() or 0)

        producer = confluent_kafka.Producer(secured.librdkafka(mechanism))
        producer.produce("orders", value, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0
        alone = {"group.id": "unused", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**secured.librdkafka(mechanism), **alone})
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, offsets[0])])
        message = consumer.poll(WAIT_S)
        assert message is not None and message.error() is None
        consumer.close()
        return offsets[0], message.value()

    offset, read = await asyncio.to_thread(story)
    assert read == value
    async with aiokafka.AIOKafkaConsumer(**secured.aiokafka(mechanism)) as consumer:
        partition = aiokafka.TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        assert (await consumer.getone()).value == value


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_or_token_is_told_to_the_program(secured: Secured, mechanism: str) -> None:
    settings = secured.librdkafka(mechanism, password="wrong")
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (IdentityProvider().token(aud="elsewhere"), 2**31)
    told: list[confluent_kafka.KafkaError] = []

    def story() -> None:
        producer = confluent_kafka.Producer({**settings, "error_cb": told.append})
        while not any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in told):
            producer.poll(0.1)

    await asyncio.to_thread(story)


# --- operators --------------------------------------------------------------------------------------------------------


def code_of(future: Any) -> int:
    """The number of the error of a change; 0 for none."""
    error = future.exception(WAIT_S)
    return 0 if error is None else error.args[0].code()


async def test_an_operator_manages_users_and_their_permissions_with_librdkafka(secured: Secured) -> None:
    """Each change is answered by itself. The users and rules are those of Tidelog's own clients."""

    def story() -> None:
        admin = AdminClient(secured.librdkafka("SCRAM-SHA-256", "admin", "orchid"))
        info = users.ScramCredentialInfo(users.ScramMechanism.SCRAM_SHA_512, 4_096)
        changed = admin.alter_user_scram_credentials(
            [
                users.UserScramCredentialUpsertion("dave", info, b"lily"),
                users.UserScramCredentialDeletion("nobody", users.ScramMechanism.SCRAM_SHA_256),
            ]
        )
        assert {name: code_of(each) for name, each in changed.items()} == {"dave": 0, "nobody": 91}
        [told] = admin.describe_user_scram_credentials(["dave"])["dave"].result(WAIT_S).scram_credential_infos
        assert (told.mechanism, told.iterations) == (users.ScramMechanism.SCRAM_SHA_512, 4_096)

        dave = AdminClient(secured.librdkafka("SCRAM-SHA-512", "dave", "lily"))
        assert not dave.list_topics(timeout=WAIT_S).topics
        rule = acl("User:dave")
        orchid = users.UserScramCredentialUpsertion("admin", info, b"orchid")
        refused = [*dave.create_acls([rule]).values(), *dave.alter_user_scram_credentials([orchid]).values()]
        assert [code_of(each) for each in refused] == [31] * 2  # CLUSTER_AUTHORIZATION_FAILED
        made = admin.create_acls([rule, acl("Group:all")])
        assert [code_of(made[each]) for each in (rule, acl("Group:all"))] == [0, 42]  # INVALID_REQUEST
        assert set(dave.list_topics(timeout=WAIT_S).topics) == {"orders"}
        of_dave = users.AclBindingFilter(
            users.ResourceType.ANY,
            None,
            users.ResourcePatternType.ANY,
            "User:dave",
            None,
            users.AclOperation.ANY,
            users.AclPermissionType.ANY,
        )
        assert admin.describe_acls(of_dave).result(WAIT_S) == [rule]
        assert admin.delete_acls([of_dave])[of_dave].result(WAIT_S) == [rule]
        assert not dave.list_topics(timeout=WAIT_S).topics

    await asyncio.to_thread(story)
    async with tidelog.Admin(secured.cluster.bootstrap) as admin:
        assert {each.name for each in await admin.list_users()} == {"alice", "admin", "dave"}
    lines = [line for line in secured.cluster.nodes[0].log.read_text().splitlines() if "AlterUsersOneByOne" in line]
    assert '"outcome": {"RESOURCE_NOT_FOUND": 1, "ok": 1}' in lines[0]
    assert '{"name": "dave", "mechanism": "SCRAM_SHA_512", "iterations": 4096}' in lines[0]  # and no key of it


def acl(principal: str) -> Any:
    return users.AclBinding(
        users.ResourceType.TOPIC,
        "orders",
        users.ResourcePatternType.LITERAL,
        principal,
        "*",
        users.AclOperation.READ,
        users.AclPermissionType.ALLOW,
    )


# --- connections ------------------------------------------------------------------------------------------------------


async def test_a_client_gets_the_certificate_that_has_replaced_the_former_one(secured: Secured) -> None:
    """Of another authority, whom only the new clients trust."""
    other = Authority(secured.authority.directory.parent / "others")
    files = [(secured.authority.directory / name, (other.directory / name)) for name in ("node.key", "node.pem")]
    kept = [path.read_bytes() for path, _ in files]
    other.node(requires=False)

    def use(contents: list[bytes]) -> None:
        for (path, _), data in zip(files, contents, strict=True):
            path.with_suffix(".part").write_bytes(data)
            path.with_suffix(".part").replace(path)

    def topics(ca: str) -> set[str]:
        settings = {**secured.librdkafka("SCRAM-SHA-256"), "ssl.ca.location": ca}
        return set(AdminClient(settings).list_topics(timeout=WAIT_S).topics)

    assert await asyncio.to_thread(topics, secured.authority.ca) == {"orders"}
    use([path.read_bytes() for _, path in files])
    try:
        assert await asyncio.to_thread(topics, other.ca) == {"orders"}
    finally:
        use(kept)
    assert await asyncio.to_thread(topics, secured.authority.ca) == {"orders"}


async def test_librdkafka_extends_its_session_before_it_expires() -> None:
    """On the same connection (KIP-368): the session gets another token."""
    world = World(
        replace(CONFIG, lifetime_ms=Millis(1_000))
    )  # by the clock of the client: that of the node stands still
    async with kafka_listener(sasl=world.sasl) as listening:
        client = AdminClient(
            {
                "bootstrap.servers": str(listening.address),
                "log_level": 0,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": "tulip",
            }
        )
        for _ in range(2):  # the connection by which it learns the address of the node is not kept
            await asyncio.to_thread(client.list_topics, timeout=WAIT_S)
        await listening.until(lambda: any(len(each.tokens) == 2 for each in world.sasl.sessions.of("alice")))
