"""Chaos on containers that are started as the manifests say: each fault of the kernel's bites, and a short run."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.chaos.bites import BITES, Observer
from tests.chaos.container_nodes import PACKETS, ContainerNodes, missing
from tests.chaos.faults.table import FAULTS, chosen
from tests.chaos.faults.upgrades import change_version
from tests.chaos.history import Probed
from tests.chaos.kubelet import KILLED, NOT_READY, READY, STARTED, Kubelet, probes_of
from tests.chaos.other_version import IMAGE, OtherVersion
from tests.chaos.play import play
from tests.chaos.schedule import EVERY_NODE, Band, plan
from tests.integration import manifest

pytestmark = [pytest.mark.containers, pytest.mark.integration, pytest.mark.deep, pytest.mark.timeout(600)]

NODES = 3
HEALTHY_S = 150
SEED = 5
SECONDS = 48
BUSY = "import time; end = time.time() + 2\nwhile time.time() < end: pass"
SHORT = ["kill", "isolate", "loss", "full-disk"]


@pytest.fixture(scope="module")
def possible() -> None:
    if (lacks := missing()) is not None:
        pytest.skip(f"nodes cannot be containers here: {lacks}")


@pytest.fixture(scope="module")
def nodes(possible: None) -> Iterator[ContainerNodes]:
    # Not below the directory of pytest: its old directories are removed, and disks are mounted here.
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-") as scratch:
        # The same version under another name.
        subprocess.run(["docker", "tag", manifest.Pod(0).image, IMAGE], check=True)
        made = ContainerNodes(Path(scratch), NODES, OtherVersion(IMAGE, image=IMAGE))
        try:
            made.wait_healthy(HEALTHY_S)
            change_version(made, range(NODES), other=False)
            made.wait_healthy(HEALTHY_S)
            made.create_topic("orders", 3, NODES)
            # A client holds the mounts that there were when it began: a broken disk is replaced all the same.
            with subprocess.Popen([*made.addresses.wrapper, "sleep", "infinity"]) as client:
                yield made
                client.kill()
        finally:
            made.close()


def _in_network(look: Observer, *command: str) -> str:
    entered = ["nsenter", "-t", str(look.nodes.pid(look.node)), "-n", *command]
    return subprocess.run(entered, capture_output=True, text=True, check=True).stdout


def _packets_are_dropped(look: Observer) -> bool:
    def dropped() -> bool:
        lines = _in_network(look, "iptables", "-nvxL", "OUTPUT").splitlines()
        return any(int(line.split()[0]) > 0 for line in lines if "DROP" in line and "statistic" in line)

    return look.comes(dropped, "a packet was dropped")


def _packets_wait(look: Observer) -> bool:
    def waited() -> bool:
        shown = _in_network(look, "tc", "-s", "qdisc", "show", "dev", "eth0")
        return "tbf" in shown and "Sent 0 " not in shown

    return look.comes(waited, "packets pass the limit")


def _packets_are_changed(look: Observer) -> bool:
    """By netem, or by the program at the other end of NFQUEUE (test_chaos_packets.py shows what it does to them)."""

    def taken() -> bool:
        lines = _in_network(look, "iptables", "-nvxL", "OUTPUT").splitlines()
        shown = _in_network(look, "tc", "-s", "qdisc", "show", "dev", "eth0")
        queued = any(int(line.split()[0]) > 0 for line in lines if "NFQUEUE" in line)
        return queued or ("netem" in shown and "Sent 0 " not in shown)

    return look.comes(taken, "packets are taken")


def _has_no_room(look: Observer) -> bool:
    space = os.statvfs(look.nodes.data(look.node))
    return space.f_bavail * space.f_frsize < 1 << 20


def _writes_fail(look: Observer) -> bool:
    try:
        (look.nodes.data(look.node) / "new").touch()
    except OSError:
        return True
    return False


def _is_throttled(look: Observer) -> bool:
    """An idle node would not notice."""
    assert isinstance(look.nodes, ContainerNodes)
    container = look.nodes.container(look.node)
    container.exec_run(["python", "-c", BUSY])
    stats = container.stats(stream=False)
    assert isinstance(stats, dict)
    return int(stats["cpu_stats"]["throttling_data"]["throttled_periods"]) > 0


def _is_limited(look: Observer) -> bool:
    assert isinstance(look.nodes, ContainerNodes)
    container = look.nodes.container(look.node)
    container.reload()
    return 0 < int(container.attrs["HostConfig"]["Memory"]) < 512 << 20


def _have_another_image(look: Observer) -> bool:
    assert isinstance(look.nodes, ContainerNodes)
    containers = [look.nodes.container(node) for node in range(NODES)]
    return {each.attrs["Config"]["Image"] for each in containers} == {IMAGE}


OWN: dict[str, Callable[[Observer], bool]] = {
    "kill": BITES["kill"],
    "terminate": BITES["terminate"],
    "pause": BITES["pause"],
    "isolate": BITES["isolate"],
    "isolate-one-way": BITES["isolate-one-way"],
    "loss": _packets_are_dropped,
    "narrow": _packets_wait,
    **{name: _packets_are_changed for name in PACKETS if name not in ContainerNodes.cannot},
    "full-disk": _has_no_room,
    "broken-disk": _writes_fail,
    "wipe": BITES["wipe"],
    "starve": _is_throttled,
    "memory": _is_limited,
    "rolling-upgrade": _have_another_image,
}


def test_a_container_whose_liveness_probe_fails_is_killed_and_lives_again(nodes: ContainerNodes) -> None:
    """Some seconds: a stopped process answers no probe, and no SIGTERM. The periods are shorter than the manifest's."""
    nodes.wait_healthy(HEALTHY_S)
    probes = {kind: replace(each, period_s=1) for kind, each in probes_of(manifest.container()).items()}
    noted: list[Probed] = []

    def restart() -> None:
        nodes.container(1).kill("SIGKILL")
        nodes.start(1)

    kubelet = Kubelet(1, probes, lambda probe: nodes.answers(1, probe), restart, noted.append)

    def reached(state: str) -> bool:
        container = nodes.container(1)
        container.reload()
        kubelet.look(container.attrs["State"]["StartedAt"], time.monotonic)
        return noted[-1:] != [] and noted[-1].state == state

    nodes.wait_until(partial(reached, READY), HEALTHY_S, "node 1 is ready")
    nodes.pause(1)
    nodes.wait_until(partial(reached, KILLED), HEALTHY_S, "node 1 is killed")
    nodes.wait_until(partial(reached, READY), HEALTHY_S, "node 1 is ready again")
    states = [each.state for each in noted]  # on a busy machine a probe may also be late while the node runs
    assert [each for each in states if each in (STARTED, KILLED)] == [STARTED, KILLED, STARTED]
    assert NOT_READY in states[states.index(READY) : states.index(KILLED)]
    nodes.wait_healthy(HEALTHY_S)


@pytest.mark.parametrize("name", OWN)
def test_a_fault_of_a_container_bites_and_ends(nodes: ContainerNodes, name: str) -> None:
    """Some seconds for each fault; the session of an isolated node ends after 2 s, the default, which the manifest
    leaves."""
    nodes.wait_healthy(HEALTHY_S)
    band = Band(name, (1,) if FAULTS[name].kind.victims != EVERY_NODE else (1, 2, 0), 0, 0, 0)
    look = Observer(nodes, band)
    look.what = FAULTS[name].begin(nodes, band, Random(7))
    try:
        assert OWN[name](look), f"{name} ({look.what}) has no effect"
    finally:
        FAULTS[name].end(nodes, band)
    nodes.wait_healthy(HEALTHY_S)


def test_faults_of_containers_under_load_lose_nothing(possible: None) -> None:
    """Above 10 s: 48 s of faults on three containers, with the whole workload, as `make chaos RUNTIME=container`."""
    rounds = plan(SEED, SECONDS, NODES, chosen(SHORT, ContainerNodes.cannot))
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-") as scratch:
        nodes = ContainerNodes(Path(scratch) / "nodes", NODES)
        try:
            result = play(nodes, rounds, SECONDS, SEED, Path(scratch), print)
        finally:
            nodes.close()
    assert result.played.failure is None
    assert result.findings == []
    assert {band.kind for band in result.played.bands} == set(SHORT)
