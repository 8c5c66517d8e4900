"""`tidelog quorum reset-epoch`: works on the log directories of stopped nodes, not on a running cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import Json, print_json, print_table
from tidelog.cli.server_packages import server_module
from tidelog.standard_streams import say

app = CommandGroup()


def reset_epoch(
    directories: Annotated[list[Path], Argument(help="First log directory of each node.")],
    after: Annotated[
        int | None, Option("--after", min=0, help="Continue after this epoch; without it, only show the epochs.")
    ] = None,
    first: Annotated[
        int | None,
        Option("--first", min=1, help="Move the epochs from this one on; default: those in the reserve."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Repair a metadata quorum whose epoch is too close to its maximum for another election.

    Stop all nodes first. Run this on every node without --after. Then run it on every node with --after and the
    greatest usable epoch that was shown for any of them.
    """
    reset: Any = server_module("node.quorum.reset")
    files = server_module("storage.files.os_files").OsFiles()
    first = reset.EPOCH_LAST if first is None else first
    paths = [str(directory) for directory in directories]
    found = {path: reset.epochs_of(path, files, first) for path in paths}
    done = [] if after is None else reset.reset(paths, after, files, first)
    if as_json:
        shown = {path: {"usable": each.below, "to_move": each.beyond} for path, each in found.items()}
        print_json({"directories": shown, "reset": done})
        return
    rows = [(path, each.below, "-" if each.beyond < 0 else each.beyond) for path, each in found.items()]
    print_table("epochs of the metadata quorum", ("directory", "greatest usable", "greatest to move"), rows)
    for path in paths:
        numbers = reset.last_reset(path, files)
        if numbers and path not in done:
            say(f"{path} was reset with {numbers}: use the same for the other nodes, unless the cluster ran since")
    if after is None:
        say("nothing was changed: check all nodes, then run this with --after and the greatest usable epoch of any")
    for path in done:
        say(f"{path}: epochs from {first} on continue after {after}")


app.add("reset-epoch", reset_epoch)
