"""The options of the `tidelog` command for SASL: they stand before the subcommand and hold for its connections."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tidelog.client_variables import ClientVariable
from tidelog.errors import InvalidConfig
from tidelog.security.sasl_user import Sasl
from tidelog.types import TokenMechanism

SaslUsername = Annotated[
    str | None, typer.Option("--sasl-username", envvar=ClientVariable.SASL_USERNAME, help="Authenticate as this user.")
]
SaslPasswordFile = Annotated[
    str | None,
    typer.Option(
        "--sasl-password-file",
        envvar=ClientVariable.SASL_PASSWORD_FILE,
        help="File with its password; without it, the password is prompted for.",
    ),
]
SaslMechanism = Annotated[
    str,
    typer.Option(
        "--sasl-mechanism",
        envvar=ClientVariable.SASL_MECHANISM,
        help="SCRAM-SHA-512 or SCRAM-SHA-256, or OAUTHBEARER with a token.",
        show_default=f"{Sasl.DEFAULT_MECHANISM}, or OAUTHBEARER with a token",
    ),
]
SaslTokenFile = Annotated[
    str | None,
    typer.Option(
        "--sasl-token-file",
        envvar=ClientVariable.SASL_TOKEN_FILE,
        help="File with a token of an identity provider (OAUTHBEARER), instead of a user and a password.",
    ),
]

_chosen: list[Sasl] = []
"""The user of the present command; empty for none."""


def choose_sasl(username: str | None, password_file: str | None, mechanism: str, token_file: str | None) -> None:
    """Set the user of the command. Raises InvalidConfig."""
    _chosen.clear()
    if token_file is not None:
        _chosen.append(Sasl(username or "", None, password_file, mechanism, token_file))
        return
    if mechanism == TokenMechanism.OAUTHBEARER.mechanism_name:
        raise InvalidConfig("--sasl-mechanism OAUTHBEARER needs a token: name its file with --sasl-token-file")
    if username is None:
        if password_file is not None:
            raise InvalidConfig("--sasl-password-file without --sasl-username: name the user too")
        return
    password = None
    if password_file is None:
        if not sys.stdin.isatty():
            raise InvalidConfig("no terminal to ask for the password: give --sasl-password-file")
        password = str(typer.prompt(f"password of {username}", hide_input=True, err=True))
    _chosen.append(Sasl(username, password, password_file, mechanism))


def chosen_sasl() -> Sasl | None:
    """The user of the command; None: no one."""
    return _chosen[0] if _chosen else None
