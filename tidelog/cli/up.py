"""`tidelog up`: a cluster of real node processes on this machine.

The nodes' packages are not part of the client: in a wheel they lie under `tidelog/_server`, in a checkout beside
`tidelog`. Only this module puts that folder on the path (`server_module`).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tidelog
from tidelog.cli.output import Json, counted, print_json, say
from tidelog.errors import UnsupportedVersion

PACKAGE = "node"
NODES_MAX = 9
PORT_MAX = 65_535 - NODES_MAX
"""Of the first node, so that the others find theirs."""


def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=NODES_MAX, help="How many.")] = 3,
    data: Annotated[Path, typer.Option("--data", "-d", help="Folder for configuration, data and logs.")] = Path(
        "tidelog-data"
    ),
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=PORT_MAX, help="Port of the first node, the others follow; 0: free ones."),
    ] = 9092,
    as_json: Json = False,
) -> None:
    """Start nodes on this machine and keep them running until interrupted (Ctrl-C).

    The same folder brings the same cluster back. A node that dies (kill one!) is started again.
    """
    server_module("process")  # what the nodes need is missed here, in one sentence, not in their logs
    local: Any = server_module("local_cluster")
    try:
        cluster = local.LocalCluster(data, nodes, first_port=port)
        cluster.run(ready=lambda: _announce(cluster, as_json=as_json), say=say)
    except local.ClusterFailed as failure:
        say(f"tidelog: {failure}")
        raise typer.Exit(1) from None


def _announce(cluster: Any, *, as_json: bool) -> None:
    pids = [node.pid for node in cluster.nodes]
    if as_json:
        told = {"bootstrap": cluster.bootstrap, "nodes": len(cluster.nodes), "data": str(cluster.folder), "pids": pids}
        print_json(told)
        return
    say(f"{counted(len(cluster.nodes), 'node')} up: {cluster.bootstrap}")
    say(f"processes {', '.join(map(str, pids))}; data in {cluster.folder}; Ctrl-C stops them")
    say(f"try: tidelog topic create greetings -b {cluster.nodes[0].address}")


def server_module(name: str, package: str = PACKAGE) -> Any:
    """A module of the nodes' packages. Raises UnsupportedVersion where they, or what they need, are not installed."""
    inside = Path(tidelog.__file__).resolve().parent
    for home in (inside / "_server", inside.parent):
        if (home / package / f"{name}.py").is_file():
            if str(home) not in sys.path:
                sys.path.insert(0, str(home))
            try:
                return importlib.import_module(f"{package}.{name}")
            except ModuleNotFoundError as missing:
                raise UnsupportedVersion(
                    f"starting nodes needs {missing.name}: pip install 'tidelog[server]'"
                ) from missing
    raise UnsupportedVersion("this installation has no node packages: install the whole wheel, or use a checkout")
