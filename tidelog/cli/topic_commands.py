"""`tidelog topic create|list|describe|alter|delete|delete-records`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tidelog.cli.cluster_command import CommandCall, ValidateOnly, cluster_command
from tidelog.cli.output import print_json, print_table
from tidelog.cli.record_deletions import delete_records
from tidelog.client.admin import NODE_DEFAULT, Admin, TopicSettingWarning
from tidelog.errors import InvalidConfig
from tidelog.standard_streams import say

app = typer.Typer(help="Create, list, describe, alter and delete topics, and delete records.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]
Config = Annotated[list[str] | None, typer.Option("--config", "-c", help="A setting, KEY=VALUE; may be repeated.")]


@cluster_command(app)
def create(
    call: CommandCall,
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions.", show_default="num.partitions of the node")
    ] = NODE_DEFAULT,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            "--replication-factor",
            "-r",
            help="Number of replicas of each partition.",
            show_default="default.replication.factor of the node",
        ),
    ] = NODE_DEFAULT,
    config: Config = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Create a topic."""
    configs = _settings(config or ())
    with _warnings() as warned:
        topic_id = call.query(
            lambda admin: admin.create_topic(
                name, partitions=partitions, replication_factor=replicas, configs=configs, validate_only=validate_only
            )
        )
    given = None if validate_only else topic_id
    document = {"name": name, "topic_id": given, "created": not validate_only, "warnings": warned}
    text = f"topic {name!r} can be created" if validate_only else f"topic {name!r} created, id {topic_id}"
    call.report(document, text)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect the warnings of the cluster and print them at the end."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TopicSettingWarning)
        yield texts
    texts += dict.fromkeys(str(each.message) for each in caught)
    for text in texts:
        say(f"warning: {text}")


def _settings(given: Iterable[str]) -> dict[str, str]:
    """Parse KEY=VALUE settings. Raises InvalidConfig."""
    configs = {}
    for setting in given:
        key, separator, value = setting.partition("=")
        if not separator:
            raise InvalidConfig(f"--config {setting!r}: write KEY=VALUE, for example min.insync.replicas=2")
        configs[key] = value
    return configs


@cluster_command(app)
def alter(
    call: CommandCall,
    name: Name,
    config: Config = None,
    default: Annotated[
        list[str] | None, typer.Option("--default", "-d", help="A setting to reset to its default: KEY.")
    ] = None,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="New total of partitions; only more.")] = 0,
    validate_only: ValidateOnly = False,
) -> None:
    """Change a topic's settings, or add partitions."""
    changes: dict[str, str | None] = {**_settings(config or ()), **dict.fromkeys(default or ())}
    if not changes and not partitions:
        raise InvalidConfig("nothing to change: pass --config KEY=VALUE, --default KEY or --partitions N")

    async def change(admin: Admin) -> None:
        if changes:
            await admin.alter_topic(name, changes, validate_only=validate_only)
        if partitions:
            await admin.create_partitions(name, partitions, validate_only=validate_only)

    with _warnings() as warned:
        call.query(change)
    document = {"name": name, "altered": not validate_only, "warnings": warned}
    text = f"topic {name!r} can be changed like this" if validate_only else f"topic {name!r} changed"
    call.report(document, text)


@cluster_command(app, "list")
def list_(call: CommandCall) -> None:
    """List all topics."""
    topics = call.query(lambda admin: admin.list_topics())
    rows = [
        (
            topic.name,
            len(topic.partitions),
            max((len(partition.replicas) for partition in topic.partitions), default=0),
            sum(partition.leader < 0 for partition in topic.partitions),
            sum(len(partition.isr) < len(partition.replicas) for partition in topic.partitions),
        )
        for topic in topics
    ]
    call.show(topics, "topics", ("topic", "partitions", "replicas", "leaderless", "under-replicated"), rows)


@cluster_command(app)
def describe(call: CommandCall, name: Name) -> None:
    """Show a topic's partitions, leaders, in-sync replicas and settings."""
    topic = call.query(lambda admin: admin.describe_topic(name))
    if call.as_json:
        print_json(topic)
        return
    rows = [
        (
            partition.partition,
            partition.leader if partition.leader >= 0 else "none",
            partition.leader_epoch,
            partition.replicas,
            partition.isr,
            partition.elr,
            partition.offline,
        )
        for partition in topic.partitions
    ]
    columns = ("partition", "leader", "epoch", "replicas", "in sync", "eligible", "offline")
    print_table(f"{topic.name}  {topic.topic_id}", columns, rows)
    print_table("settings", ("key", "value"), topic.configs.items())


@cluster_command(app)
def delete(call: CommandCall, name: Name) -> None:
    """Delete a topic and all its records."""
    call.query(lambda admin: admin.delete_topic(name))
    call.report({"name": name, "deleted": True}, f"topic {name!r} deleted")


cluster_command(app, "delete-records")(delete_records)
