"""`tidelog up`: a cluster of real node processes on this machine.

The nodes' packages are not part of the client: in a wheel they lie under `tidelog/_server`, in a checkout beside
`tidelog`. Only this command puts that folder on the path.
"""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tidelog
from tidelog.cli.output import Json, print_json, say
from tidelog.errors import UnsupportedVersion

PACKAGE = "node"


def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=9, help="How many.")] = 3,
    data: Annotated[Path, typer.Option("--data", "-d", help="Folder for configuration, data and logs.")] = Path(
        "tidelog-data"
    ),
    port: Annotated[
        int, typer.Option("--port", help="Port of the first node, the others follow; 0: free ones.")
    ] = 9092,
    as_json: Json = False,
) -> None:
    """Start nodes on this machine and keep them running until interrupted (Ctrl-C).

    The same folder brings the same cluster back.
    """
    local: Any = _server_module("local_cluster")
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: stopping.append(received))
    cluster = local.LocalCluster(data, nodes, first_port=port)
    try:
        cluster.start()
        cluster.wait_until(
            lambda: stopping or _alive(cluster), within_s=60, what=f"all {nodes} nodes have joined the cluster"
        )
        if not stopping:
            _announce(cluster, as_json=as_json)
        cluster.wait_until(lambda: stopping, within_s=float("inf"), what="an interrupt")
        say("stopping")
        cluster.stop()
    except local.ClusterFailed as failure:
        say(f"tidelog: {failure}")
        raise typer.Exit(1) from None
    finally:
        cluster.kill_all()


def _alive(cluster: Any) -> bool:
    """Whether every node has been unfenced, as the first one sees it."""
    said = cluster.describe(0)
    return len([node for node in said.nodes if not node.fenced]) == len(cluster.nodes)


def _announce(cluster: Any, *, as_json: bool) -> None:
    if as_json:
        print_json({"bootstrap": cluster.bootstrap, "nodes": len(cluster.nodes), "data": str(cluster.folder)})
        return
    say(f"{len(cluster.nodes)} nodes are up: {cluster.bootstrap}")
    say(f"data in {cluster.folder}; Ctrl-C stops them")
    say(f"try: tidelog topic create greetings -b {cluster.nodes[0].address}")


def _server_module(name: str) -> Any:
    """A module of the nodes' packages."""
    inside = Path(tidelog.__file__).resolve().parent
    for home in (inside / "_server", inside.parent):
        if (home / PACKAGE / f"{name}.py").is_file():
            if str(home) not in sys.path:
                sys.path.insert(0, str(home))
            try:
                return importlib.import_module(f"{PACKAGE}.{name}")
            except ModuleNotFoundError as missing:
                raise UnsupportedVersion(
                    f"starting nodes needs {missing.name}: pip install 'tidelog[server]'"
                ) from missing
    raise UnsupportedVersion("this installation has no node packages: install the whole wheel, or use a checkout")
