"""`tidelog cluster snapshot|restore`: the metadata of a cluster as one file, and back."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import click

import tidelog
from tidelog.cli.apply_command import carry_out, with_diff, without_offsets
from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall
from tidelog.cli.declared import Argument, Option
from tidelog.cli.output import counted
from tidelog.cli.state_files import STANDARD_INPUT, read_state
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.desired.change_planner import PruneScope
from tidelog.desired.desired_state import ResourceKind
from tidelog.desired.snapshots import StateSnapshot, take_snapshot
from tidelog.desired.state_document import MISSING_TOPICS, SNAPSHOT, state_document
from tidelog.errors import InvalidConfig
from tidelog.standard_streams import say

NOT_INCLUDED: Final = (
    "records",
    "passwords of users: no request returns them; give each user password-env or password-file before a restore",
    "nodes, their settings, and which of them have the replicas",
    "settings of groups",
    "open transactions, and states of producers",
)
"""What a snapshot says of itself."""

File = Annotated[str, Argument(help="The file, *.json; - for standard output or input.")]


@dataclass(frozen=True, slots=True)
class _Taken:
    """A snapshot and what it is of."""

    cluster: ClusterDescription
    snapshot: StateSnapshot


def snapshot(call: CommandCall, file: File) -> None:
    """Write topics with their settings, users without passwords, ACLs, quotas and committed offsets of groups to a file
    that `cluster restore` and `apply` read. Exit code 1: some topics are missing, because the caller may not see
    them."""
    if file != STANDARD_INPUT and Path(file).suffix != ".json":
        raise WrongUsage(f"{file!r}: name the file *.json, so that restore and apply know its form")

    async def work(admin: Admin) -> _Taken:
        cluster = await admin.describe_cluster()
        return _Taken(cluster, await take_snapshot(admin))

    taken = call.query(work)
    if file != STANDARD_INPUT:
        check_replaceable(Path(file), taken.cluster.cluster_id, taken.snapshot.hidden)
    text = json.dumps(_document(taken), indent=1, ensure_ascii=False) + "\n"
    if file == STANDARD_INPUT:
        sys.stdout.write(text)
    else:
        replace_file(Path(file), text)
    state, hidden, deleted = taken.snapshot.state, taken.snapshot.hidden, taken.snapshot.deleted
    counts = {kind: len(getattr(state, kind.replace("-", "_"))) for kind in ResourceKind}
    report = {"file": file, "cluster_id": taken.cluster.cluster_id, "counts": counts, "not_included": NOT_INCLUDED}
    if file != STANDARD_INPUT or not call.as_json:
        call.report(
            {**report, "hidden_topics": hidden, "deleted_topics": deleted},
            f"cluster {taken.cluster.cluster_id}: {counted(len(state.topics), 'topic')}, "
            f"{counted(len(state.users), 'user')} (without passwords), {counted(len(state.acls), 'ACL')}, quotas of "
            f"{len(state.quotas)}, offsets of {counted(len(state.group_offsets), 'group')}",
            f"not included: {'; '.join(NOT_INCLUDED)}",
        )
    if deleted:
        say(f"left out, because they were deleted meanwhile: {', '.join(deleted)}")
    if hidden:
        say(f"tidelog: {counted(hidden, 'topic')} missing: you may not DESCRIBE them, or they changed meanwhile")
        raise click.exceptions.Exit(1)


def restore(
    call: CommandCall,
    file: File,
    diff: Annotated[bool, Option("--diff", help="Show what would change; exit code 1: something would.")] = False,
    group_offsets: Annotated[
        bool,
        Option("--group-offsets", help="Commit offsets of groups too, where a group has none for a partition."),
    ] = False,
) -> None:
    """Create what a snapshot has, and change what differs; delete nothing. The same file again changes nothing. Exit
    code 1: an object was not restored. With --diff: 0, nothing would change; 1, something would; 2, it is unknown, or
    the cluster would refuse a change."""
    state = read_state([file])
    if state.group_offsets and not group_offsets:
        # Where records have other offsets than before, a group would skip some of them, or read some again.
        state = without_offsets(state, "pass --group-offsets if the records have the offsets that they had")
    carry_out(call, state, PruneScope(), diff=diff)


restore_command: Final = with_diff(restore, "restore")


def _document(taken: _Taken) -> dict[str, Any]:
    now = datetime.fromtimestamp(MachineClock().wall_ms() // 1_000, UTC)
    header = {
        "version": 1,
        "cluster-id": taken.cluster.cluster_id,
        "taken-at": now.isoformat(),
        "tidelog": tidelog.__version__,
        "feature-level": taken.cluster.feature_level,
        "metadata-offset": taken.cluster.metadata_offset,
        MISSING_TOPICS: taken.snapshot.hidden,
        "not-included": NOT_INCLUDED,
    }
    return {SNAPSHOT: header, **state_document(taken.snapshot.state)}


def check_replaceable(file: Path, cluster_id: str, missing_topics: int) -> None:
    """Raise InvalidConfig if the file is there and has what a snapshot of this cluster lacks. A cluster that took the
    place of a lost one has its address: its first snapshot would replace the last one of the other. missing_topics: how
    many the snapshot lacks."""
    if not file.exists():
        return
    try:
        present = json.loads(file.read_text(encoding="utf-8-sig"))
        found = str(present[SNAPSHOT]["cluster-id"])
        is_complete = not present[SNAPSHOT].get(MISSING_TOPICS)
        named = [name for name, user in present["users"].items() if {"password-env", "password-file"} & user.keys()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InvalidConfig(f"{file} exists and is no snapshot: it is not replaced; name another file") from None
    if found != cluster_id:
        raise InvalidConfig(
            f"{file} is a snapshot of another cluster, {found}, perhaps the last one: it is not replaced; name another "
            "file, or move that one"
        )
    if missing_topics and is_complete:
        # The caller lost a permission: the next one to restore would not have the topics that it no longer sees.
        raise InvalidConfig(
            f"{file} is a complete snapshot, and this one would lack {counted(missing_topics, 'topic')} that you may "
            "not DESCRIBE: it is not replaced; name another file"
        )
    if named:
        raise InvalidConfig(
            f"{file} says where passwords are, as of user {named[0]!r}, which a snapshot does not: it is not replaced; "
            "name another file"
        )


def replace_file(file: Path, text: str) -> None:
    """Write a file whole: an interrupted snapshot must not take the place of the one before it. A symbolic link stays
    one, and the file that it names is replaced."""
    target = file.resolve()
    unfinished = target.with_name(f"{target.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(target)
