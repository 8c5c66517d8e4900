"""What the documents say to type: their `tidelog` commands and their pieces of Python, read from the pages."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tidelog.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
"""A block, also within a list: its indentation, its language, its lines."""
INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
IN_SENTENCE = re.compile(r"`(tidelog [^`]+)`")
SHELLS = ("", "sh", "bash", "shell", "console", "text")

PLACEHOLDERS = {'"$@"': "topic list", "COMMAND ...": "topic list", "MAX": "1", "N": "1", "P": "1", "SECONDS": "1"}
"""Words of a synopsis that stand for a command or a number."""


def shell_lines(text: str) -> Iterator[str]:
    """The lines of the shell blocks of a page, continued lines joined."""
    blocks = [body for _indent, language, body in BLOCK.findall(text) if language in SHELLS]
    outside = BLOCK.sub("", text)
    for body in (*blocks, "\n".join(INDENTED.findall(outside))):
        for line in re.sub(r"\s*\\\n\s*", " ", body).splitlines():
            yield line.strip().removeprefix("$ ").removeprefix("> ")


def tidelog_commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `tidelog` command in the blocks of a page."""
    for line in shell_lines(text):
        yield from commands_of(line)


def sentence_commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `tidelog` command that a sentence of a page has in full: others only name a command."""
    for piece in IN_SENTENCE.findall(BLOCK.sub("", text)):
        for words in commands_of(" ".join(piece.split())):
            if not (len(words) == 1 and commands_of_group(words[0])) and refusal(words) is None:
                yield words


def commands_of(line: str) -> Iterator[list[str]]:
    """The arguments of the `tidelog` commands of one line. A synopsis stands for the command with all its options, each
    with the first of its values; ` | ` separates further commands of the same group, or further last options."""
    plain = re.sub(r"\s#.*$", "", line)
    plain = re.sub(r"\s\[-\S+ \.\.\.\]", "", plain)  # [-o ...]: the option again
    for _nested in range(2):  # [--from earliest|latest], [--topic NAME [--prefixed]]
        plain = re.sub(r"\[([-A-Z][^\[\]|]*)[^\[\]]*\]", r"\1", plain)
    plain = re.sub(r"(?<=[\w-])\|(?=[\w-])[\w|-]*", "", plain)  # --allow|--deny
    first = ""
    for part in re.split(r"\s*(?:\|\||&&|[|;])\s*", plain):
        command = re.split(r"\s{2,}", part)[0]  # behind it: what the command does
        if command.startswith("tidelog "):
            first = command
        elif re.match(r"-+[a-z]", command) and (same := re.match(r"(tidelog .*) --?[a-z]", first)):
            command = f"{same[1]} {command}"
        elif first and command.partition(" ")[0] in commands_of_group(first.split()[1]):
            command = f"tidelog {first.split()[1]} {command}"
        else:
            continue
        yield arguments_of(command)


def commands_of_group(name: str) -> dict[str, Any]:
    return getattr(app.loaded(name), "commands", {})


def arguments_of(command: str) -> list[str]:
    for placeholder, value in PLACEHOLDERS.items():
        command = re.sub(rf"(?<!\S){re.escape(placeholder)}(?!\S)", value, command)
    command = re.sub(r"\s?\.\.\.(?!\S)", "", command)  # PATH...
    words = shlex.split(re.sub(r"\$\([^)]*\)", "VALUE", command))
    for index, word in enumerate(words):
        if re.match(r"\d?[<>]|&$", word):  # a redirection, or a command in the background
            return words[1:index]
    return words[1:]


def refusal(arguments: list[str]) -> str | None:
    """What the command tree says against the arguments; None if it takes them."""
    command: Any = app
    context: Any = None
    rest = list(arguments)
    try:
        while True:
            context = command.make_context(command.name or "tidelog", rest, parent=context)
            if not hasattr(command, "commands"):
                return None
            _name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    except click.exceptions.Exit:  # --help, --version
        return None
    except Exception as error:  # noqa: BLE001 - whatever it refuses with
        return f"tidelog {shlex.join(arguments)}: {getattr(error, 'message', '') or type(error).__name__}"


def python_blocks(text: str, language: str = "python") -> dict[str, str]:
    """The Python of a page, by the heading above; the second one under a heading has `, 2` behind it. language: that of
    other blocks."""
    found: dict[str, str] = {}
    for match in BLOCK.finditer(text):
        if match[2] == language:
            heading = re.findall(r"^#+ (.*)$", BLOCK.sub("", text[: match.start()]), re.MULTILINE)[-1]
            again = sum(name.partition(", ")[0] == heading for name in found)
            found[f"{heading}, {again + 1}" if again else heading] = textwrap.dedent(match[3])
    return found


def programs_of_shell(text: str) -> Iterator[str]:
    """The lines of the shell blocks of a page that start one of Tidelog's programs in another way than by `tidelog`."""
    for line in shell_lines(text):
        if line.startswith(("python -m tidelog.", "spark-submit ")):
            yield line
