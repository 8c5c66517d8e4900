"""Who a client is: the user name and the password, or the token, with which it authenticates by SASL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeAlias

from tidelog.errors import InvalidConfig
from tidelog.security.oauth_bearer import TOKEN_BYTES_MAX, checked_token
from tidelog.types import ScramMechanism, TokenMechanism

TokenCallable: TypeAlias = Callable[[], str | Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Sasl:
    """A user: a name and a password, or a token of an identity provider.

    The password is given, or read from the first line of `password_file` at each authentication, so that a changed file
    needs no restart. mechanism: `SCRAM-SHA-512` (default) or `SCRAM-SHA-256`.
    token_file: a file whose whole text is the token, read at each authentication, as for the service accounts of
    Kubernetes. token: instead of the file, a function without arguments that returns the token, or a coroutine
    function; it is called at each authentication. A function that is no coroutine function runs on a thread.
    mechanism: `OAUTHBEARER` (default with either).
    allow_insecure: send the token without TLS to other addresses than loopback. Raises InvalidConfig.
    """

    username: str = ""
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    mechanism: str = ""
    token_file: str | None = None
    token: TokenCallable | None = field(default=None, repr=False)
    allow_insecure: bool = False

    DEFAULT_MECHANISM: ClassVar[str] = "SCRAM-SHA-512"

    def __post_init__(self) -> None:
        has_token = self.token is not None or self.token_file is not None
        if not self.mechanism:
            default = TokenMechanism.OAUTHBEARER.mechanism_name if has_token else self.DEFAULT_MECHANISM
            object.__setattr__(self, "mechanism", default)
        names = [each.mechanism_name for each in (*ScramMechanism, *TokenMechanism)]
        if self.mechanism not in names:
            raise InvalidConfig(f"SASL mechanism {self.mechanism!r} is unknown; use {' or '.join(names)}")
        if self.is_token:
            self._check_token()
        else:
            self._check_password(has_token=has_token)

    def _check_token(self) -> None:
        if self.username or self.password is not None or self.password_file is not None:
            raise InvalidConfig("SASL OAUTHBEARER: the token names the user; give no user name and no password")
        if (self.token is None) == (self.token_file is None):
            raise InvalidConfig("SASL OAUTHBEARER: give the file of a token or a function that returns one, not both")
        if self.token is not None and not callable(self.token):
            raise InvalidConfig(
                "SASL OAUTHBEARER: token must be a function that returns the token, because tokens expire; for "
                "one in a file, give token_file"
            )
        if self.token_file is not None and not self.token_file:
            raise InvalidConfig("SASL OAUTHBEARER: token_file must be the path of a file")

    def _check_password(self, *, has_token: bool) -> None:
        if has_token:
            raise InvalidConfig(f"SASL {self.mechanism} has no token; leave the token or the mechanism out")
        if not self.username:
            raise InvalidConfig("SASL needs the name of a user; give one")
        if (self.password is None) == (self.password_file is None):
            raise InvalidConfig(f"SASL user {self.username!r}: give a password or the file of one, not both")
        if self.password is not None and not isinstance(self.password, str):
            raise InvalidConfig(f"SASL user {self.username!r}: the password must be a str")

    @property
    def is_token(self) -> bool:
        """Whether the user authenticates with a token."""
        return self.mechanism == TokenMechanism.OAUTHBEARER.mechanism_name

    @property
    def scram(self) -> ScramMechanism:
        """The mechanism of a password."""
        return ScramMechanism[self.mechanism.replace("-", "_")]

    def read_password(self) -> str:
        """The password as it is now. Raises InvalidConfig if its file cannot be read."""
        if self.password_file is None:
            assert self.password is not None
            return self.password
        return first_line(self.password_file, "password")

    def read_token(self) -> str:
        """The token that the file has now. Raises InvalidConfig if there is none."""
        assert self.token_file is not None
        try:
            with Path(self.token_file).open("rb") as file:
                text = file.read(2 * TOKEN_BYTES_MAX).decode("ascii")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in ASCII"
            raise InvalidConfig(f"token file {self.token_file} cannot be read: {reason}") from None
        return checked_token(text, f"token file {self.token_file}")


def first_line(file: str, what: str) -> str:
    """The first line of a file. what: what it is, for errors. Raises InvalidConfig if it cannot be read or is empty."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InvalidConfig(f"{what} file {file} cannot be read: {reason}") from None
    if not lines or not lines[0]:
        raise InvalidConfig(f"{what} file {file} is empty: write the {what} in its first line")
    return lines[0]
