"""The environment variables of the `tidelog` command.

Nodes share their prefix, and `tidelog up` starts nodes with the environment of the shell: nodes ignore these variables.
"""

from __future__ import annotations

from enum import StrEnum


class ClientVariable(StrEnum):
    """Each has the meaning of the option of that name."""

    BOOTSTRAP = "TIDELOG_BOOTSTRAP"
    PROFILE = "TIDELOG_PROFILE"
    TLS_CA = "TIDELOG_TLS_CA"
    TLS_CERT = "TIDELOG_TLS_CERT"
    TLS_KEY = "TIDELOG_TLS_KEY"
    SASL_USERNAME = "TIDELOG_SASL_USERNAME"
    SASL_PASSWORD_FILE = "TIDELOG_SASL_PASSWORD_FILE"  # noqa: S105 - the name of a variable
    SASL_MECHANISM = "TIDELOG_SASL_MECHANISM"
    SASL_TOKEN_FILE = "TIDELOG_SASL_TOKEN_FILE"  # noqa: S105 - the name of a variable
