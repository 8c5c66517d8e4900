"""`tidelog topic create|list|describe|offsets|alter|delete|delete-records`.

Most take several topics: what fails for one of them is said, and the others are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import click

from tidelog.cli.cluster_command import CommandCall, ValidateOnly, cluster_command
from tidelog.cli.declared import CommandGroup, Option
from tidelog.cli.output import error_document, print_json
from tidelog.cli.record_deletions import delete_records
from tidelog.cli.topic_changes import alter_topics, collected_warnings, parsed_settings, setting_changes
from tidelog.cli.topic_description import Names, describe, offsets
from tidelog.client.admin import NODE_DEFAULT, Admin, NewTopic
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.standard_streams import say

app = CommandGroup()
Config = Annotated[list[str] | None, Option("--config", "-c", help="A setting, KEY=VALUE; may be repeated.")]
_REPLICAS = ("--replicas", "--replication-factor", "-r")


@cluster_command(app)
def create(
    call: CommandCall,
    names: Names,
    partitions: Annotated[
        int, Option("--partitions", "-p", help="Number of partitions.", show_default="num.partitions of the node")
    ] = NODE_DEFAULT,
    replicas: Annotated[
        int,
        Option(
            *_REPLICAS,
            help="Number of replicas of each partition.",
            show_default="default.replication.factor of the node",
        ),
    ] = NODE_DEFAULT,
    config: Config = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Create topics."""
    configs = parsed_settings(config or ())
    topics = [NewTopic(name, partitions, replicas, configs) for name in dict.fromkeys(names)]
    with collected_warnings() as warned:
        created = call.query(lambda admin: admin.create_topics(topics, validate_only=validate_only))
    for name, outcome in created.items():
        if not isinstance(outcome, TidelogError):
            given = None if validate_only else outcome
            document = {"name": name, "topic_id": given, "created": not validate_only, "warnings": warned}
            text = f"topic {name!r} can be created" if validate_only else f"topic {name!r} created, id {outcome}"
            call.report(document, text)
    _end(call, names, created, "created")


@cluster_command(app)
def alter(
    call: CommandCall,
    names: Names,
    config: Config = None,
    default: Annotated[
        list[str] | None, Option("--default", "-d", help="A setting to reset to its default: KEY.")
    ] = None,
    partitions: Annotated[int, Option("--partitions", "-p", help="New total of partitions; only more.")] = 0,
    replicas: Annotated[
        int,
        Option(
            *_REPLICAS,
            min=0,
            help="New number of replicas of each partition; returns once they are being made. 0: as many as now.",
        ),
    ] = 0,
    validate_only: ValidateOnly = False,
) -> None:
    """Change settings of topics, add partitions, or change the number of replicas."""
    changes = setting_changes(config, default)
    if not changes and not partitions and not replicas:
        raise InvalidConfig(
            "nothing to change: pass --config KEY=VALUE, --default KEY, --partitions N or --replication-factor N"
        )

    async def change(admin: Admin) -> dict[str, TidelogError]:
        return await alter_topics(
            admin, names, changes, partitions, replication_factor=replicas, validate_only=validate_only
        )

    with collected_warnings() as warned:
        failed = call.query(change)
    for name in names:
        if name not in failed:
            document = {"name": name, "altered": not validate_only, "warnings": warned}
            text = f"topic {name!r} can be changed like this" if validate_only else f"topic {name!r} changed"
            call.report(document, text)
    _end(call, names, failed, "altered")


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


cluster_command(app)(describe)
cluster_command(app)(offsets)


@cluster_command(app)
def delete(call: CommandCall, names: Names) -> None:
    """Delete topics and all their records."""
    deleted = call.query(lambda admin: admin.delete_topics(names))
    for name, error in deleted.items():
        if error is None:
            call.report({"name": name, "deleted": True}, f"topic {name!r} deleted")
    _end(call, names, deleted, "deleted")


cluster_command(app, "delete-records")(delete_records)


def _end(call: CommandCall, names: Sequence[str], outcomes: Mapping[str, object], done: str) -> None:
    """Say which of the named topics failed, and end with exit code 1 if one did. Raises the error of a single one: it
    needs no name."""
    failed = {name: each for name, each in outcomes.items() if isinstance(each, TidelogError)}
    for name, error in failed.items():
        if len(names) == 1:
            raise error
        if call.as_json:
            print_json({"name": name, done: False, **error_document(error)})
        say(f"tidelog: topic {name!r} was not {done}: {error.message}")
    if failed:
        raise click.exceptions.Exit(1)
