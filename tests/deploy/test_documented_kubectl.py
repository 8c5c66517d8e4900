"""The `kubectl` commands of the documents name directories, objects and pods that the manifests have, and those of the
runbook are run by scenarios of `make k8s-test`."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.deploy.kustomizations import rendered
from tests.document_commands import BLOCK, shell_lines
from tests.integration import manifest

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to render manifests with")

PAGES = [manifest.ROOT / "docs" / name for name in ("apply.md", "deploy.md", "operations.md")]
SCENARIOS = manifest.ROOT / "tests" / "k8s"
RUN_BY = {
    "kubectl -n tidelog exec tidelog-0 -- env TIDELOG_BOOTSTRAP=localhost:9192 tidelog $@": (
        "test_runbook.py",
        "on_node",
    ),
    "kubectl apply -k deploy/overlays/prod": ("production.py", "namespace.apply(home, manifest.PROD"),
    "kubectl -n tidelog rollout status statefulset/tidelog": (
        "cluster.py",
        '"rollout", "status", "statefulset/tidelog"',
    ),
    "kubectl taint node MACHINE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute": (
        "test_machine_loss.py",
        '"taint", "node", lost, f"{OUT}=nodeshutdown:NoExecute"',
    ),
    "kubectl -n tidelog delete pvc data-tidelog-1 --wait=false": (
        "test_wiped_volume.py",
        '"delete", "pvc", f"data-{pod}", "--wait=false"',
    ),
    "kubectl -n tidelog delete pod tidelog-1": ("test_wiped_volume.py", '"delete", "pod", pod'),
    "kubectl -n tidelog delete pod tidelog-2": ("test_statefulset.py", '"delete", "pod", *former'),
    "kubectl -n tidelog get pods -o wide": ("test_runbook.py", '"get", "pods", "-o", "wide"'),
    "kubectl -n tidelog describe pod tidelog-1": ("test_runbook.py", '"describe", "pod", "tidelog-1"'),
}
"""For each command of the runbook the file of tests/k8s that runs it, and how it does."""
NOT_RUN = {"kubectl -n tidelog edit pvc data-tidelog-0": "an editor, and a storage class whose volumes can grow"}
SECRETS = {"tidelog-tls", "tidelog-passwords", "tidelog-object-store"}
"""What an operator makes."""


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `kubectl` command in a block or a sentence."""
    inline = [" ".join(code.split()) for code in re.findall(r"`(kubectl [^`]+)`", BLOCK.sub("", text))]
    for line in (*shell_lines(text), *inline):
        if line.startswith("kubectl "):
            yield shlex.split(line)[1:]


def unknown(words: list[str], names: set[str]) -> Iterator[str]:
    """What a command names, and no manifest has."""
    for option, value in pairwise(words):
        if option == "-k" and not (manifest.ROOT / value / "kustomization.yaml").is_file():
            yield value
    for word in words:
        name = word.rpartition("/")[2]
        is_object = re.fullmatch(r"(?:(?:statefulset|pod|pvc)/)?(?:data-)?tidelog[\w-]*", word)
        if is_object and name not in names and word not in SECRETS:
            yield word


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The names of all objects, and those of the pods and claims that a StatefulSet makes of at most five nodes."""
    stateful = manifest.the("StatefulSet")
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    pods = {f"{stateful['metadata']['name']}-{ordinal}" for ordinal in range(5)}
    claims = {f"{claim['metadata']['name']}-{pod}" for pod in pods}
    return pods | claims | {each["metadata"]["name"] for objects in rendered().values() for each in objects}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_names_what_there_is(page: Path, names: set[str]) -> None:
    found = list(commands(page.read_text(encoding="utf-8")))
    assert found, "commands are found"
    assert [(" ".join(words), wrong) for words in found for wrong in unknown(words, names)] == []


def test_every_command_of_the_runbook_is_run_by_a_scenario() -> None:
    runbook = (manifest.ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    written = {" ".join(("kubectl", *words)) for words in commands(runbook)}
    assert written == RUN_BY.keys() | NOT_RUN.keys()
    missing = {
        command: file
        for command, (file, how) in RUN_BY.items()
        if how not in (SCENARIOS / file).read_text(encoding="utf-8")
    }
    assert missing == {}, "the scenario does something else now"


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("kubectl apply -k deploy/overlays/production", "deploy/overlays/production"),
        ("kubectl -n tidelog rollout status statefulset/tidelog-node", "statefulset/tidelog-node"),
        ("kubectl -n tidelog delete pod tidelog-node-1", "tidelog-node-1"),
        ("kubectl -n tidelog delete pvc data-tidelog", "data-tidelog"),
    ],
)
def test_a_command_that_names_something_else_is_noticed(command: str, wrong: str, names: set[str]) -> None:
    assert [each for words in commands(f"`{command}`") for each in unknown(words, names)] == [wrong]
