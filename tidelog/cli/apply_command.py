"""`tidelog apply`: topics, users, ACLs and quotas as files say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any, Final

import click

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, declared_on_cluster
from tidelog.cli.cluster_options import option_for
from tidelog.cli.declared import Option
from tidelog.cli.output import counted, print_json, print_table
from tidelog.cli.state_files import (
    read_password,
    read_state,
    refuse_incomplete_snapshots,
    refuse_unread_files,
)
from tidelog.cli.topic_changes import collected_warnings
from tidelog.client.admin import Admin
from tidelog.desired.change_driver import ChangeOutcome, execute_changes, look_at_state
from tidelog.desired.change_planner import ChangeAction, PruneScope, plan_changes
from tidelog.desired.desired_state import DesiredState, ResourceKind
from tidelog.errors import TidelogError
from tidelog.standard_streams import say

DIFFERS: Final = 1
"""Exit code of --diff if something would change, as of `diff` and `kubectl diff`."""
DIFF_FAILED: Final = 2
"""Exit code of --diff if that is unknown, or if a change would be refused."""

_NOUNS: Final = {
    ResourceKind.TOPICS: "topic",
    ResourceKind.USERS: "user",
    ResourceKind.ACLS: "acl",
    ResourceKind.QUOTAS: "quota",
    ResourceKind.GROUP_OFFSETS: "group offsets",
}
_DONE: Final = {
    ChangeAction.CREATE: "created",
    ChangeAction.CHANGE: "changed",
    ChangeAction.DELETE: "deleted",
    ChangeAction.NONE: "unchanged",
}


def apply(
    call: CommandCall,
    file: Annotated[
        list[str] | None,
        Option("--file", "-f", help="A file, TOML or JSON, or a directory of such; - for standard input; repeatable."),
    ] = None,
    diff: Annotated[bool, Option("--diff", help="Show what would change; exit code 1: something would.")] = False,
    prune: Annotated[
        bool,
        Option("--prune", help="Delete what the files do not have, of the kinds that they have a section for."),
    ] = False,
    prune_prefix: Annotated[
        list[str] | None,
        Option("--prune-prefix", help="Delete only what has a name that begins with this; repeatable."),
    ] = None,
    set_passwords: Annotated[
        bool, Option("--set-passwords", help="Set the passwords of users that exist too; ends their sessions.")
    ] = False,
) -> None:
    """Create and change topics, users, ACLs and quotas, so that the cluster has what files say. The same files again
    change nothing. Exit code 1: an object does not have what the files say. With --diff: 0, nothing would change; 1,
    something would; 2, it is unknown, or the cluster would refuse a change."""
    if not file or "" in file:
        # Empty is no path: of a variable of a script that is not set, it would be the current directory.
        raise WrongUsage("name a file or a directory: --file PATH")
    if prune_prefix and not prune:
        raise WrongUsage("--prune-prefix limits --prune: pass --prune too")
    if "" in (prune_prefix or ()):
        # Of a variable of a script that is not set: every name begins with it.
        raise WrongUsage("--prune-prefix is empty, which would be every name: leave it out for that")
    if prune:
        refuse_unread_files(file)
    desired = without_offsets(read_state(file), "only `tidelog cluster restore` sets them")
    if prune:
        refuse_incomplete_snapshots(desired)
    user = "" if call.connection.sasl is None else call.connection.sasl.username
    scope = PruneScope(desired.kinds, tuple(prune_prefix or ()), user) if prune else PruneScope()
    carry_out(call, desired, scope, diff=diff, set_passwords=set_passwords)


def without_offsets(state: DesiredState, why: str) -> DesiredState:
    """The state without the offsets of groups; says so if it has some."""
    if state.group_offsets:
        say(f"offsets of {counted(len(state.group_offsets), 'group')} are left out: {why}")
    return replace(state, kinds=state.kinds - {ResourceKind.GROUP_OFFSETS}, group_offsets={})


def carry_out(
    call: CommandCall, desired: DesiredState, prune: PruneScope, *, diff: bool, set_passwords: bool = False
) -> None:
    """Plan and execute, or only show, the changes; print the outcome of each object, and end with the exit code. After
    Ctrl-C, print the outcomes so far."""
    outcomes: list[ChangeOutcome] = []
    planned = 0

    async def work(admin: Admin) -> None:
        nonlocal planned
        present = await look_at_state(admin, desired.kinds, desired.topics, desired.group_offsets)
        changes = plan_changes(desired, present, prune, set_passwords=set_passwords)
        planned = len(changes)
        async for outcome in execute_changes(admin, changes, read_password, validate_only=diff):
            outcomes.append(outcome)  # noqa: PERF401 (a comprehension would lose them when Ctrl-C ends it)

    for source, missing in desired.missing_topics.items():
        say(f"{source} is incomplete: it lacks {counted(missing, 'topic')} that its cluster had")
    is_interrupted = False
    with collected_warnings() as warned:
        try:
            call.query(work)
        except KeyboardInterrupt:
            if diff or not planned:
                raise  # nothing was changed
            is_interrupted = True
    refused = any(each.is_refused for each in outcomes)
    differs = any(each.change.action is not ChangeAction.NONE for each in outcomes)
    if call.as_json:
        objects = [_document(each, diff=diff) for each in outcomes]
        report = {"differs": differs, "refused": refused, "objects": objects, "warnings": warned}
        print_json({**report, "interrupted": is_interrupted})
    else:
        _print(outcomes, diff=diff)
    if is_interrupted:
        say(
            f"interrupted: {counted(planned - len(outcomes), 'object')} of {planned} have no outcome; what was being "
            "changed may have been changed or not; the same command continues"
        )
        raise KeyboardInterrupt
    if refused:
        raise click.exceptions.Exit(DIFF_FAILED if diff else 1)
    if diff and differs:
        raise click.exceptions.Exit(DIFFERS)


def _document(outcome: ChangeOutcome, *, diff: bool) -> dict[str, object]:
    change = outcome.change
    error = outcome.error.message if outcome.error is not None else None
    if change.action is ChangeAction.REFUSE:
        error = change.details[-1]
    return {
        "kind": _NOUNS[change.kind],
        "name": change.name,
        "action": change.action,
        "details": change.details,
        "done": not diff and not outcome.is_refused,
        "error": error,
    }


def _print(outcomes: Sequence[ChangeOutcome], *, diff: bool) -> None:
    rows = []
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        change = outcome.change
        result = "refused" if outcome.is_refused else str(change.action) if diff else _DONE[change.action]
        if change.action is ChangeAction.NONE:
            result = _DONE[ChangeAction.NONE]
        counts[result] += 1
        if change.action is not ChangeAction.NONE:
            details = [*change.details, *([] if outcome.error is None else [outcome.error.message])]
            rows.append((result, _NOUNS[change.kind], change.name, "; ".join(details)))
    if rows:
        print_table("differences" if diff else "changes", ("", "kind", "name", "what"), rows)
    summary = ", ".join(f"{count} {result}" for result, count in counts.items())
    say(f"{'nothing was changed; ' if diff else ''}{summary or 'the files describe nothing'}")


def _fails_with_2(run: Callable[..., Any]) -> Callable[..., Any]:
    """The command, with the exit code of --diff for an error that ends it: 1 would say that something differs."""

    @wraps(run)
    def guarded(**given: Any) -> Any:
        try:
            return run(**given)
        except TidelogError as error:
            if not given["diff"]:
                raise
            say(f"{click.get_current_context().command_path}: {error.message}{option_for(error)}")
            raise click.exceptions.Exit(DIFF_FAILED) from None

    return guarded


def with_diff(work: Callable[..., None], name: str) -> click.Command:
    """The command of a function that has --diff."""
    command = declared_on_cluster(work, name)
    assert command.callback is not None
    command.callback = _fails_with_2(command.callback)
    return command


command: Final = with_diff(apply, "apply")
