"""`tidelog config describe|alter`: settings of topics and nodes."""

from __future__ import annotations

from typing import Annotated

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, ValidateOnly, cluster_command
from tidelog.cli.declared import CommandGroup, Option
from tidelog.cli.output import print_json, print_table
from tidelog.cli.setting_tables import COLUMNS, is_override, setting_document, setting_rows
from tidelog.cli.topic_changes import alter_topics, collected_warnings, setting_changes
from tidelog.client.admin import Admin
from tidelog.cluster_descriptions import ResourceConfigs
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.standard_streams import say

app = CommandGroup()
Topics = Annotated[list[str] | None, Option("--topic", "-t", help="A topic; repeatable.")]


@cluster_command(app)
def describe(
    call: CommandCall,
    topic: Topics = None,
    node: Annotated[list[int] | None, Option("--node", "-n", help="A node by its number; repeatable.")] = None,
    changed: Annotated[bool, Option("--changed", help="Only settings that are not left at their default.")] = False,
) -> None:
    """Show every setting with its value, its source, and the value that it would have otherwise. Exit code 1: a topic
    or node could not be described."""
    if not topic and not node:
        raise WrongUsage("say whose settings: pass --topic NAME or --node N")

    async def work(admin: Admin) -> dict[str, ResourceConfigs | TidelogError]:
        found: dict[str, ResourceConfigs | TidelogError] = {}
        if topic:
            for name, each in (await admin.describe_topic_settings(topic)).items():
                found[f"topic {name}"] = each
        for number in node or ():
            try:
                found[f"node {number}"] = await admin.describe_node_settings(number)
            except TidelogError as error:
                found[f"node {number}"] = error
        return found

    has_failed = False
    for name, found in call.query(work).items():
        error = found if isinstance(found, TidelogError) else found.error
        if error is not None or isinstance(found, TidelogError):
            has_failed = True
            say(f"tidelog: {name}: {error.message if error is not None else ''}")
            continue
        settings = [each for each in found.configs if is_override(each) or not changed]
        if call.as_json:
            kind, _, called = name.partition(" ")
            print_json({kind: called, "settings": [setting_document(each) for each in settings]})
        else:
            print_table(f"settings of {name}", COLUMNS, setting_rows(settings))
    if has_failed:
        raise click.exceptions.Exit(1)


@cluster_command(app)
def alter(
    call: CommandCall,
    topic: Topics = None,
    node: Annotated[list[int] | None, Option("--node", "-n", help="Refused: says how a node is changed.")] = None,
    config: Annotated[list[str] | None, Option("--config", "-c", help="A setting, KEY=VALUE; repeatable.")] = None,
    default: Annotated[
        list[str] | None, Option("--default", "-d", help="A setting to reset to its default: KEY; repeatable.")
    ] = None,
    validate_only: ValidateOnly = False,
) -> None:
    """Change settings of topics. Nodes apply them at once. Exit code 1: a topic was not changed."""
    if node:
        raise InvalidConfig(
            "a node reads its settings when it starts: change its file (or TIDELOG_... in its environment) and restart "
            f"node {node[0]} (`tidelog node safe-to-restart {node[0]}` says whether it may stop); cordoned.log.dirs "
            f"changes by `tidelog node cordon {node[0]} --log-dir PATH`"
        )
    if not topic:
        raise WrongUsage("say whose settings: pass --topic NAME")
    changes = setting_changes(config, default)
    if not changes:
        raise WrongUsage("nothing to change: pass --config KEY=VALUE or --default KEY")
    with collected_warnings() as warned:
        failed = call.query(lambda admin: alter_topics(admin, topic, changes, validate_only=validate_only))
    done = [name for name in topic if name not in failed]
    what = "can be changed like this" if validate_only else "changed"
    call.report(
        {"altered": [] if validate_only else done, "failed": sorted(failed), "warnings": warned},
        *(f"topic {name!r} {what}" for name in done),
    )
    for name, error in failed.items():
        say(f"tidelog: topic {name!r} was not changed: {error.message}")
    if failed:
        raise click.exceptions.Exit(1)
