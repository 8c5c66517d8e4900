"""The options of connections, for commands and jobs, and the one place that makes `Tls` and `Sasl` from them.

Each may stand before the command or after it. What is not given comes from the environment, then from the profile; a
profile that `--profile` names comes before the environment.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import click

from tidelog.cli.declared import Option, given_of, options_of
from tidelog.cli.profiles import NO_PROFILE, Profile, profile_of
from tidelog.client_variables import ClientVariable
from tidelog.cluster_connection import DEFAULT_BOOTSTRAP, ClusterConnection
from tidelog.errors import (
    ClientCertificateRejected,
    ClientCertificateRequired,
    InvalidConfig,
    TidelogError,
    TlsNotSpoken,
    TlsRequired,
    UnknownCertificateAuthority,
)
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.types import TokenMechanism


def _option(variable: ClientVariable, text: str, *names: str, **more: Any) -> Any:
    """An option with the name and the meaning of an environment variable: TIDELOG_TLS_CA is --tls-ca."""
    name = "--" + variable.removeprefix("TIDELOG_").lower().replace("_", "-")
    return Option(name, *names, envvar=variable, help=text, is_global=True, **more)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of a connection; None: not given."""

    bootstrap: Annotated[
        str | None,
        _option(
            ClientVariable.BOOTSTRAP,
            "Addresses of some nodes: host:port,host:port.",
            "-b",
            show_default=DEFAULT_BOOTSTRAP,
        ),
    ] = None
    profile: Annotated[
        str | None, _option(ClientVariable.PROFILE, "Profile of ~/.config/tidelog/config.toml with these settings.")
    ] = None
    tls_ca: Annotated[
        str | None, _option(ClientVariable.TLS_CA, "Connect with TLS; PEM file of the trusted authorities.")
    ] = None
    tls_cert: Annotated[
        str | None, _option(ClientVariable.TLS_CERT, "Connect with TLS; PEM file of the own certificate.")
    ] = None
    tls_key: Annotated[str | None, _option(ClientVariable.TLS_KEY, "PEM file of the key of --tls-cert.")] = None
    sasl_username: Annotated[str | None, _option(ClientVariable.SASL_USERNAME, "Authenticate as this user.")] = None
    sasl_password_file: Annotated[
        str | None,
        _option(ClientVariable.SASL_PASSWORD_FILE, "File with its password; without it, the password is prompted for."),
    ] = None
    sasl_mechanism: Annotated[
        str | None,
        _option(
            ClientVariable.SASL_MECHANISM,
            "SCRAM-SHA-512 or SCRAM-SHA-256, or OAUTHBEARER with a token.",
            show_default=f"{Sasl.DEFAULT_MECHANISM}, or OAUTHBEARER with a token",
        ),
    ] = None
    sasl_token_file: Annotated[
        str | None,
        _option(
            ClientVariable.SASL_TOKEN_FILE,
            "File with a token of an identity provider (OAUTHBEARER), instead of a user and a password.",
        ),
    ] = None

    def tls(self) -> Tls | None:
        """The files of the options; None for plain text. Raises InvalidConfig."""
        given = self.tls_ca or self.tls_cert or self.tls_key
        return Tls(self.tls_ca, self.tls_cert, self.tls_key) if given else None

    def sasl(self) -> Sasl | None:
        """The user or token that the options name; None without any. The password is prompted for if no file is named.
        Raises InvalidConfig."""
        username, password_file, mechanism = self.sasl_username, self.sasl_password_file, self.sasl_mechanism or ""
        if self.sasl_token_file is not None:
            return Sasl(username or "", None, password_file, mechanism, self.sasl_token_file)
        # Without a token this mechanism would ask for a password, which it cannot use.
        if mechanism == TokenMechanism.OAUTHBEARER.mechanism_name:
            raise InvalidConfig("--sasl-mechanism OAUTHBEARER needs a token: name its file with --sasl-token-file")
        if username is None:
            if password_file is not None:
                raise InvalidConfig("--sasl-password-file without --sasl-username: name the user too")
            return None
        password = None
        if password_file is None:
            # A prompt in a script would wait for ever.
            if not sys.stdin.isatty():
                raise InvalidConfig("no terminal to ask for the password: give --sasl-password-file")
            password = str(click.prompt(f"password of {username}", hide_input=True, err=True))
        return Sasl(username, password, password_file, mechanism)


CONNECTION: Final = tuple(options_of(ClusterOptions))
"""The options of a connection as parameters of a command."""

_NEXT_STEP: Final[Mapping[type[TidelogError], str]] = {
    TlsRequired: "The option for it is --tls-ca FILE (TIDELOG_TLS_CA).",
    TlsNotSpoken: "Leave out --tls-ca, --tls-cert and --tls-key (TIDELOG_TLS_CA, TIDELOG_TLS_CERT, TIDELOG_TLS_KEY).",
    UnknownCertificateAuthority: "The option for it is --tls-ca FILE (TIDELOG_TLS_CA).",
    ClientCertificateRequired: "The options for it are --tls-cert FILE and --tls-key FILE (TIDELOG_TLS_CERT, "
    "TIDELOG_TLS_KEY).",
    ClientCertificateRejected: "It is the file of --tls-cert (TIDELOG_TLS_CERT).",
}


def connection_options(ctx: click.Context) -> ClusterOptions:
    """The settings of the connection of the present command. Raises InvalidConfig for an unusable profile."""
    profile = profile_in(ctx)
    found = {}
    for each in fields(ClusterOptions):
        given = given_of(ctx, each.name, reads_environment=not profile.is_chosen)
        found[each.name] = profile.connection.get(each.name) if given is None else given
    return ClusterOptions(**found)


def profile_in(ctx: click.Context) -> Profile:
    """The profile of the present command; NO_PROFILE for a command without a connection. Raises InvalidConfig."""
    if "profile" not in ctx.params:
        return NO_PROFILE
    chosen = given_of(ctx, "profile", reads_environment=False)
    return profile_of(chosen or given_of(ctx, "profile"), is_chosen=chosen is not None)


def connection_of(ctx: click.Context, client_id: str = "") -> ClusterConnection:
    """The cluster of the present command. Raises InvalidConfig."""
    options = connection_options(ctx)
    return ClusterConnection(options.bootstrap or DEFAULT_BOOTSTRAP, options.tls(), options.sasl(), client_id)


def profile_defaults(ctx: click.Context) -> Mapping[str, Any]:
    """The defaults that the profile has for the options of the present command, by the names of parameters. Raises
    InvalidConfig."""
    words, here = list[str](), ctx
    while here.parent is not None:
        words, here = [here.info_name or "", *words], here.parent
    return profile_in(ctx).defaults_of(" ".join(words), ctx)


def option_for(error: TidelogError) -> str:
    """A sentence that names the option for the error's next step; empty if there is none."""
    step = _NEXT_STEP.get(type(error))
    return "" if step is None else f" {step}"
