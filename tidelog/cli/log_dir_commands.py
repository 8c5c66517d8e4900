"""`tidelog log-dirs`: the log directories of nodes, with their disks and the logs in them."""

from __future__ import annotations

from typing import Annotated

import click

from tidelog.cli.cluster_command import CommandCall, declared_on_cluster
from tidelog.cli.declared import Option
from tidelog.cli.output import plain, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.cluster_descriptions import ReplicaLog, ReplicaLogDir
from tidelog.errors import TidelogError
from tidelog.standard_streams import say
from tidelog.types import NodeId


def log_dirs(
    call: CommandCall,
    node: Annotated[list[int] | None, Option("--node", "-n", help="Only this node; repeatable.")] = None,
    topic: Annotated[list[str] | None, Option("--topic", "-t", help="Only logs of this topic; repeatable.")] = None,
    logs: Annotated[bool, Option("--logs", help="Show each log, with its bytes and its offset lag.")] = False,
) -> None:
    """Show log directories with their disks, and how much the logs in them take. Exit code 1: a node did not answer, a
    directory is offline, or a named topic does not exist."""

    async def work(admin: Admin) -> dict[NodeId, list[ReplicaLogDir] | TidelogError]:
        for each in topic or ():
            await admin.describe_topic(each)  # of a topic that does not exist no node has a log
        return await admin.describe_log_dirs(node)

    found = call.query(work)
    document, rows, each_log, problems = [], [], [], []
    for number, directories in found.items():
        if isinstance(directories, TidelogError):
            problems.append(f"node {number}: {directories.message}")
            continue
        for directory in directories:
            kept = [log for log in directory.logs if not topic or log.partition.topic in topic]
            if directory.error is not None:
                problems.append(f"node {number}: {directory.path}: {directory.error.message}")
            document.append(
                {
                    "node": number,
                    "path": directory.path,
                    "error": None if directory.error is None else directory.error.message,
                    "cordoned": directory.cordoned,
                    "total_bytes": directory.total_bytes,
                    "usable_bytes": directory.usable_bytes,
                    "bytes": sum(log.size for log in kept),
                    "logs": plain(kept),
                }
            )
            disk = ["-" if size < 0 else size for size in (directory.total_bytes, directory.usable_bytes)]
            cordoned = "yes" if directory.cordoned else "no"
            rows.append((number, directory.path, len(kept), sum(log.size for log in kept), *disk, cordoned))
            each_log += [(number, _name_of(log), log.size, log.offset_lag) for log in kept]
    if call.as_json:
        print_json(document)
    else:
        print_table("log directories", ("node", "path", "logs", "bytes", "disk", "usable", "cordoned"), rows)
        if logs:
            print_table("logs", ("node", "partition", "bytes", "offset lag"), each_log)
    for problem in problems:
        say(f"tidelog: {problem}")
    if problems:
        raise click.exceptions.Exit(1)


def _name_of(log: ReplicaLog) -> str:
    return f"{log.partition} (copy)" if log.is_future else str(log.partition)


command = declared_on_cluster(log_dirs, "log-dirs")
