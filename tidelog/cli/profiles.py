"""Profiles: named settings of connections, and defaults of options, in `~/.config/tidelog/config.toml`.

[profile.default]
bootstrap = "127.0.0.1:9192"

[profile.production]
bootstrap = ["node-0.example.org:9193", "node-1.example.org:9193"]
tls-ca = "ca.pem"                       # files are relative to this one
sasl-username = "alice"
sasl-password-file = "password"

[profile.production.defaults.produce]   # the options of `tidelog produce` by their long names
compression = "zstd"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from tidelog.errors import InvalidConfig

DEFAULT: Final = "default"
"""The profile that counts if none is named."""
_FILES: Final = ("tls-ca", "tls-cert", "tls-key", "sasl-password-file", "sasl-token-file")
_SETTINGS: Final = ("bootstrap", *_FILES, "sasl-username", "sasl-mechanism")
_DEFAULTS: Final = "defaults"


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of a profile."""

    name: str = ""
    path: str = ""
    """Of the file that has it."""
    connection: Mapping[str, str] = field(default_factory=dict)
    """By the names of the fields of ClusterOptions."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of options, by command and subcommand."""
    is_chosen: bool = False
    """`--profile` names it: it counts more than the environment."""

    def defaults_of(self, command: str, ctx: click.Context) -> dict[str, Any]:
        """The defaults for a command, by the names of its parameters. Raises InvalidConfig."""
        table: Any = self.defaults
        for word in command.split():
            table = table.get(word, {}) if isinstance(table, Mapping) else {}
        if not isinstance(table, Mapping):
            raise self._wrong(f"defaults of {command!r} are no table")
        options = {
            name.removeprefix("--"): each
            for each in ctx.command.params
            if isinstance(each, click.Option) and not getattr(each, "is_global", False)
            for name in each.opts
            if name.startswith("--")
        }
        found = {}
        for key, value in table.items():
            option = options.get(key)
            if option is None:
                known = ", ".join(sorted(options))
                raise self._wrong(f"{command!r} has no option {key!r}; use one of {known}")
            assert option.name is not None, "a declared option has a name"
            try:
                found[option.name] = option.type_cast_value(ctx, _as_given(option, value))
            except click.BadParameter as error:
                raise self._wrong(f"defaults.{command.replace(' ', '.')}.{key}: {error.message}") from error
        return found

    def _wrong(self, what: str) -> InvalidConfig:
        return InvalidConfig(f"{self.path}: profile {self.name!r}: {what}")


NO_PROFILE: Final = Profile()


def config_path() -> Path:
    """The file of the profiles."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "tidelog" / "config.toml"


def profile_of(name: str | None, *, is_chosen: bool) -> Profile:
    """The profile of a name; None: the one called `default`, if there is one. is_chosen: see Profile. Raises
    InvalidConfig if a named one is missing, or if one cannot be read."""
    path = config_path()
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        if name is None:
            return NO_PROFILE
        raise InvalidConfig(
            f"there is no profile {name!r}: {path} does not exist; create it with a table [profile.{name}]"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidConfig(f"{path} cannot be read: {reason}") from error
    profiles = document.get("profile", {})
    table = profiles.get(name or DEFAULT) if isinstance(profiles, Mapping) else None
    if table is None:
        if name is None:
            return NO_PROFILE
        known = ", ".join(sorted(profiles)) if isinstance(profiles, Mapping) and profiles else "none"
        raise InvalidConfig(f"{path} has no profile {name!r} (profiles: {known}): add a table [profile.{name}]")
    return _parsed(name or DEFAULT, path, table, is_chosen=is_chosen)


def _parsed(name: str, path: Path, table: Any, *, is_chosen: bool) -> Profile:
    if not isinstance(table, Mapping):
        raise InvalidConfig(f"{path}: profile {name!r} is no table: write [profile.{name}]")
    connection = {}
    for key, value in table.items():
        if key == _DEFAULTS:
            continue
        if key not in _SETTINGS:
            raise InvalidConfig(
                f"{path}: profile {name!r}: unknown setting {key!r}; use {', '.join(_SETTINGS)}, or tables [profile."
                f"{name}.defaults.COMMAND]"
            )
        if key == "bootstrap" and isinstance(value, list):
            value = ",".join(map(str, value))
        if not isinstance(value, str):
            raise InvalidConfig(f"{path}: profile {name!r}: {key} = {value!r}: use a text")
        given = str(path.parent / Path(value).expanduser()) if key in _FILES else value
        connection[key.replace("-", "_")] = given
    defaults = table.get(_DEFAULTS, {})
    if not isinstance(defaults, Mapping):
        raise InvalidConfig(f"{path}: profile {name!r}: defaults are no table: write [profile.{name}.defaults.COMMAND]")
    return Profile(name, str(path), connection, defaults, is_chosen)


def _as_given(option: click.Option, value: Any) -> Any:
    """A value of TOML as one on the command line."""
    if option.is_flag and isinstance(value, bool):
        return value
    if option.multiple:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    return str(value)
