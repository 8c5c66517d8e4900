"""What a session of OAUTHBEARER was proven with.

Not here: reading tokens (bearer_tokens.py), whose libraries only a node with OAUTHBEARER loads.
"""

from __future__ import annotations

from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class BearerCredential:
    """What a session was proven with."""

    key: str
    """The digest of the key that verified the token."""
