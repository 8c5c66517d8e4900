"""Every command line and every piece of Python in the documents is one that the installed wheel understands.

A command is a line that begins with `tidelog` or `tidelog-node` in a block, or the whole of a piece of code in a
sentence. It is parsed by the real command tree, and not run. Python must compile, and the names that it takes from
Tidelog must exist.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.document_commands import IN_SENTENCE, PAGES, python_blocks, refusal, tidelog_commands
from tidelog.cli.app import app

OF_A_CHECKOUT = {
    "python -m node --config": "the sentence names the command of the wheel too, tidelog-node",
    "python -m node.process.probe": "in the container image, which has the server packages on its path",
    "python -m tests": "tests are not in the wheel",
    "python -m bench": "measurements are not in the wheel",
    "python -m examples": "examples are not in the wheel",
}
"""Commands that the wheel cannot run, each with the reason why a document may name it."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_tree_takes_every_command(page: Path) -> None:
    refused = [refusal(arguments) for arguments in tidelog_commands(page.read_text(encoding="utf-8"))]
    assert [each for each in refused if each] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_sentence_names_exists(page: Path) -> None:
    """A sentence may leave out arguments: only the words up to the first argument are looked up."""
    unknown = []
    for text in IN_SENTENCE.findall(page.read_text(encoding="utf-8")):
        command: Any = app
        for word in text.split()[1:]:
            if not hasattr(command, "commands") or not re.fullmatch("[a-z][a-z-]*", word):
                break
            if word not in command.commands:
                unknown.append(text)
                break
            command = command.loaded(word)
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_needs_a_checkout_says_so(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = set(re.findall(r"python -m ((?!tidelog\.|venv|pip|http)[a-z][\w.]*(?: --config)?)", text))
    assert [
        module for module in modules if not any(f"python -m {module}".startswith(known) for known in OF_A_CHECKOUT)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_compiles_and_its_names_exist(page: Path) -> None:
    faults = []
    for body in python_blocks(page.read_text(encoding="utf-8")).values():
        tree = ast.parse(body)
        compile(tree, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        faults += [f"{name} of {module}" for module, name in names_of_tidelog(tree) if not has(module, name)]
    assert faults == []


def names_of_tidelog(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What the code takes from Tidelog's modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tidelog":
            yield from ((str(node.module), each.name) for each in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tidelog":
            yield "tidelog", node.attr


def has(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def test_a_wrong_command_is_noticed() -> None:
    assert refusal(["topic", "create", "orders", "--partitions", "6"]) is None
    for wrong in (["topic", "make", "orders"], ["topic", "create", "orders", "--shards", "6"], ["topic", "create"]):
        assert refusal(wrong) is not None
    assert list(tidelog_commands("```sh\ncat x | tidelog produce \\\n  t > out  # all\n```")) == [["produce", "t"]]


def test_every_alternative_of_a_synopsis_is_a_command() -> None:
    synopsis = "tidelog acl list | remove [--topic NAME [--prefixed]]   what it does"
    assert list(tidelog_commands(f"```\n{synopsis}\n```")) == [
        ["acl", "list"],
        ["acl", "remove", "--topic", "NAME", "--prefixed"],
    ]
    synopsis = "tidelog partition reassign TOPIC-N --replicas 1,2,4 | --cancel"
    assert [words[3:] for words in tidelog_commands(f"```\n{synopsis}\n```")] == [["--replicas", "1,2,4"], ["--cancel"]]
    assert list(tidelog_commands("```\ntidelog topic list | head -1\n```")) == [["topic", "list"]]
