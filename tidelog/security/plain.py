"""PLAIN: the message of a client with its password, without input or output (RFC 4616).

Not here: whether the password is right (node/security/sasl_authenticator.py).

    [IDENTITY] NUL USER NUL PASSWORD
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.security.saslprep import saslprep
from tidelog.security.scram import NAME_BYTES_MAX

MESSAGE_BYTES_MAX: Final = 4_096


def read_message(message: bytes) -> tuple[str, str]:
    """The prepared name of the user, and the password. Raises InvalidRequest, whose text has nothing of the message."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise InvalidRequest(f"a PLAIN message has at most {MESSAGE_BYTES_MAX} bytes, not {len(message)}")
    try:
        identity, user, password = message.decode("utf-8").split("\0")
    except UnicodeDecodeError:
        raise InvalidRequest("a PLAIN message is text in UTF-8") from None
    except ValueError:
        raise InvalidRequest("a PLAIN message has three parts, separated by zero bytes (RFC 4616)") from None
    try:
        name = saslprep(user)
    except ValueError as error:
        raise InvalidRequest(f"the user name cannot be used: it {error}") from None
    if not name or not password or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a PLAIN message has a user of 1 to {NAME_BYTES_MAX} bytes, and a password")
    if identity not in ("", user, name):
        raise InvalidRequest("a client cannot act for another user: leave the authorization id empty")
    return name, password
