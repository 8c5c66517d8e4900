"""Files that describe topics, users, ACLs and quotas: TOML or JSON, one or a directory of them, and their passwords."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tidelog.cli.output import counted
from tidelog.desired.desired_state import DesiredState, DesiredUser, PasswordSource, ResourceKind
from tidelog.desired.state_document import joined, parse_state
from tidelog.errors import InvalidConfig
from tidelog.security.sasl_user import first_line

STANDARD_INPUT: Final = "-"
_FORMS: Final = (".toml", ".json")


def read_state(places: Iterable[str]) -> DesiredState:
    """The state of files, and of all files of directories, not of those below. Raises InvalidConfig."""
    return joined(dict(_states(dict.fromkeys(places))))


def refuse_unread_files(places: Iterable[str]) -> None:
    """Raise InvalidConfig if a directory below a named one has files and is not named itself: they were perhaps moved
    there, and --prune would delete all that they describe."""
    named = [Path(place) for place in places if place != STANDARD_INPUT]
    read = {each.resolve() for each in named}
    for home in named:
        below = [each for each in home.glob("*/") if each.is_dir() and not each.name.startswith(".")]
        for folder in sorted(each for each in below if each.resolve() not in read):
            if any(each.suffix.lower() in _FORMS for each in folder.rglob("*")):
                raise InvalidConfig(
                    f"{folder} has files that are not read, and --prune would delete what they describe: name it with "
                    f"--file too, or the files of {home} one by one"
                )


def refuse_incomplete_snapshots(state: DesiredState) -> None:
    """Raise InvalidConfig if a snapshot lacks topics of its cluster: --prune would delete them."""
    if ResourceKind.TOPICS in state.kinds:
        for source, missing in state.missing_topics.items():
            raise InvalidConfig(
                f"{source} is an incomplete snapshot: it lacks {counted(missing, 'topic')}, which --prune would "
                "delete; take it again as a user who may DESCRIBE all topics"
            )


def read_password(source: PasswordSource) -> str:
    """The password of a user. Raises InvalidConfig."""
    if source.file:
        return first_line(source.file, "password")
    password = os.environ.get(source.variable)
    if not password:
        # The name is not shown: by mistake, some write the password itself there.
        raise InvalidConfig("the environment variable which password-env names is not set, or is empty")
    return password


def _states(places: Iterable[str]) -> Iterator[tuple[str, DesiredState]]:
    for place in places:
        if place == STANDARD_INPUT:
            # TOML cannot begin with a brace, and a JSON document of ours does.
            if sys.stdin is None:
                raise InvalidConfig("standard input is closed: pipe a file to it")
            text = sys.stdin.read().removeprefix("\ufeff")
            form = ".json" if text.lstrip().startswith("{") else ".toml"
            yield "standard input", _described(text, form, "standard input")
            continue
        for file in _files(Path(place)):
            yield str(file), _state_of(file)


def _files(path: Path) -> list[Path]:
    try:
        files = sorted(each for each in path.iterdir() if each.suffix.lower() in _FORMS) if path.is_dir() else [path]
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error
    if not files:
        # Of a wrong path, not a wish for a cluster without anything.
        raise InvalidConfig(f"{path} has no file *.toml or *.json: check the path")
    return files


def _state_of(file: Path) -> DesiredState:
    form = file.suffix.lower()
    if form not in _FORMS:
        raise InvalidConfig(f"{file}: its form is unknown; name it *.toml or *.json")
    try:
        text = file.read_text(encoding="utf-8-sig")  # editors of Windows begin files with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InvalidConfig(f"{file} cannot be read: {reason}") from error
    state = _described(text, form, str(file))
    return replace(state, users={name: _beside(file, each) for name, each in state.users.items()})


def _described(text: str, form: str, source: str) -> DesiredState:
    try:
        return parse_state(_parsed(text, form, source), source)
    except RecursionError:
        raise InvalidConfig(f"{source}: its tables are nested too deeply") from None


def _parsed(text: str, form: str, source: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats) if form == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"{source} is not {form[1:].upper()}: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of JSON. Raises ValueError for a key that it has twice: only the last would count, and --prune would
    delete what the others describe. TOML refuses it by itself."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"the key {repeated!r} is twice in one object: keep one of them")
    return found


def _beside(file: Path, user: DesiredUser) -> DesiredUser:
    """The user with the path of its password file, which is relative to the file that names it."""
    if user.password is None or not user.password.file:
        return user
    try:
        path = file.parent / Path(user.password.file).expanduser()
    except RuntimeError as error:
        raise InvalidConfig(f"{file}: the password file {user.password.file} has no path: {error}") from None
    return replace(user, password=PasswordSource(file=str(path)))
