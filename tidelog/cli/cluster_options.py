"""The options of connections, for commands and jobs, and the one place that makes `Tls` and `Sasl` from them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from tidelog.client_variables import ClientVariable
from tidelog.cluster_connection import ClusterConnection
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

BOOTSTRAP_HELP: Final = "Addresses of some nodes: host:port,host:port."


def _option(variable: ClientVariable, text: str, **more: Any) -> Any:
    """An option with the name and the meaning of an environment variable: TIDELOG_TLS_CA is --tls-ca."""
    name = "--" + variable.removeprefix("TIDELOG_").lower().replace("_", "-")
    return typer.Option(name, envvar=variable, help=text, **more)


@dataclass(frozen=True, slots=True)
class CredentialOptions:
    """The options for the credentials of a connection."""

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
        str,
        _option(
            ClientVariable.SASL_MECHANISM,
            "SCRAM-SHA-512 or SCRAM-SHA-256, or OAUTHBEARER with a token.",
            show_default=f"{Sasl.DEFAULT_MECHANISM}, or OAUTHBEARER with a token",
        ),
    ] = ""
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
        username, password_file, mechanism = self.sasl_username, self.sasl_password_file, self.sasl_mechanism
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
            password = str(typer.prompt(f"password of {username}", hide_input=True, err=True))
        return Sasl(username, password, password_file, mechanism)


_NEXT_STEP: Final[Mapping[type[TidelogError], str]] = {
    TlsRequired: "Options before the subcommand: --tls-ca FILE (TIDELOG_TLS_CA).",
    TlsNotSpoken: "Leave out --tls-ca, --tls-cert and --tls-key (TIDELOG_TLS_CA, TIDELOG_TLS_CERT, TIDELOG_TLS_KEY).",
    UnknownCertificateAuthority: "The option for it is --tls-ca FILE, before the subcommand (TIDELOG_TLS_CA).",
    ClientCertificateRequired: "Options before the subcommand: --tls-cert FILE and --tls-key FILE (TIDELOG_TLS_CERT, "
    "TIDELOG_TLS_KEY).",
    ClientCertificateRejected: "It is the file of --tls-cert (TIDELOG_TLS_CERT).",
}


def bootstrap_of(ctx: typer.Context, value: str | None) -> str | None:
    """The addresses given after the command, else those before it, else those of the environment, else the default."""
    source = ctx.get_parameter_source("bootstrap")
    before: str | None = ctx.find_root().params.get("bootstrap")
    # An empty value before the command comes from an unset variable of a shell, `-b "$SERVERS"`: it names no nodes.
    return value if not before or (source is not None and source.name == "COMMANDLINE") else before


def connection_of(ctx: typer.Context, bootstrap: str) -> ClusterConnection:
    """The cluster of the present command."""
    tls, sasl = ctx.find_root().obj  # made by the root command: a password is prompted for once, before anything else
    return ClusterConnection(bootstrap, tls, sasl)


def tls_option_for(error: TidelogError) -> str:
    """A sentence that names the option for the error's next step; empty if there is none."""
    step = _NEXT_STEP.get(type(error))
    return "" if step is None else f" {step}"
