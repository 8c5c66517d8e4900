"""The options of the `tidelog` command for TLS: they stand before the subcommand and hold for its connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from tidelog.client_variables import ClientVariable
from tidelog.errors import (
    ClientCertificateRejected,
    ClientCertificateRequired,
    TidelogError,
    TlsNotSpoken,
    TlsRequired,
    UnknownCertificateAuthority,
)
from tidelog.security.tls_files import Tls

TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca", envvar=ClientVariable.TLS_CA, help="Connect with TLS; PEM file of the trusted authorities."
    ),
]
TlsCert = Annotated[
    str | None,
    typer.Option(
        "--tls-cert", envvar=ClientVariable.TLS_CERT, help="Connect with TLS; PEM file of the own certificate."
    ),
]
TlsKey = Annotated[
    str | None, typer.Option("--tls-key", envvar=ClientVariable.TLS_KEY, help="PEM file of the key of --tls-cert.")
]

_NEXT_STEP: Final[Mapping[type[TidelogError], str]] = {
    TlsRequired: "Options before the subcommand: --tls-ca FILE (TIDELOG_TLS_CA).",
    TlsNotSpoken: "Leave out --tls-ca, --tls-cert and --tls-key (TIDELOG_TLS_CA, TIDELOG_TLS_CERT, TIDELOG_TLS_KEY).",
    UnknownCertificateAuthority: "The option for it is --tls-ca FILE, before the subcommand (TIDELOG_TLS_CA).",
    ClientCertificateRequired: "Options before the subcommand: --tls-cert FILE and --tls-key FILE (TIDELOG_TLS_CERT, "
    "TIDELOG_TLS_KEY).",
    ClientCertificateRejected: "It is the file of --tls-cert (TIDELOG_TLS_CERT).",
}

_chosen: list[Tls] = []
"""The files of the present command; empty for plain text."""


def choose_tls(ca: str | None, certificate: str | None, key: str | None) -> None:
    """Set the files of the command. Raises InvalidConfig."""
    _chosen[:] = [Tls(ca, certificate, key)] if ca or certificate or key else []


def chosen_tls() -> Tls | None:
    """The files of the command; None for plain text."""
    return _chosen[0] if _chosen else None


def tls_option_for(error: TidelogError) -> str:
    """Which option the error is about, as another sentence; empty for none."""
    step = _NEXT_STEP.get(type(error))
    return "" if step is None else f" {step}"
