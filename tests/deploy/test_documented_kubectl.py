"""The `kubectl` commands of the documents name directories, objects and pods that the manifests have."""

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
SECRETS = {"tidelog-tls", "tidelog-passwords"}
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
