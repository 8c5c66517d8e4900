"""Limits for epochs of the metadata quorum: the last usable epoch, and the largest step that one message may cause.

An epoch is 32 bits wide in every record batch, and each election needs the next one. A node that has adopted the
largest epoch can never vote again, and a cluster of such nodes can never elect a leader. Therefore no message moves a
node into the reserve below the maximum, and none raises its epoch by more than `EPOCH_JUMP`. A node that is further
behind catches up in steps of that size.

Not here: which messages are trusted (quorum.py), the repair of a cluster whose stored epoch lies in the reserve
(node/quorum/reset.py).
"""

from __future__ import annotations

from typing import Final

from tidelog.types import INT32_MAX, LeaderEpoch

EPOCH_MAX: Final = INT32_MAX
"""Largest epoch that the batch format can store."""

EPOCH_RESERVE: Final = 1 << 16
"""Number of epochs below the maximum that are never used."""

EPOCH_LAST: Final = EPOCH_MAX - EPOCH_RESERVE
"""Last epoch that a node adopts. At one election a second it is reached after 68 years."""

EPOCH_JUMP: Final = 1_000
"""Largest increase of a node's epoch by one message. A node that was away for longer catches up with the answers to its
own fetches, one step each, about seven a second."""


def step_towards(known: LeaderEpoch, received: LeaderEpoch) -> LeaderEpoch:
    """The epoch that a node in epoch `known` adopts after it received the higher epoch `received`. Returns `known` if
    `received` is above `EPOCH_LAST`."""
    return known if received > EPOCH_LAST else LeaderEpoch(min(received, known + EPOCH_JUMP))
