"""Which epochs of the metadata quorum are possible, and by how much one message may raise a node's epoch.

An epoch is 32 bits wide in every record batch, and each election needs the next one: a node that has adopted the
largest can never vote again, and a cluster of such nodes never elects. So no message moves a node into the reserve
below the maximum, none raises its epoch by more than `EPOCH_JUMP`, and a node that is further behind catches up in
steps of that size.

Left to others: who is believed (quorum.py), the way out for a cluster whose stored epoch lies in the reserve
(node/quorum/reset.py).
"""

from __future__ import annotations

from typing import Final

from tidelog.types import LeaderEpoch

EPOCH_MAX: Final = (1 << 31) - 1
"""The largest number that the format of batches can hold."""

EPOCH_RESERVE: Final = 1 << 16
"""So many epochs below the maximum are never used."""

EPOCH_LAST: Final = EPOCH_MAX - EPOCH_RESERVE
"""The last epoch that a node adopts. At one election a second it is reached after 68 years."""

EPOCH_JUMP: Final = 1_000
"""One message raises the epoch of a node by so many at most. A node that was away for longer catches up with the
answers to its own fetches, one step each, some seven a second."""


def step_towards(known: LeaderEpoch, told: LeaderEpoch) -> LeaderEpoch:
    """The epoch that a node in epoch `known` adopts when it hears of `told`, a higher one; `known` where `told` is none
    that any node may be in."""
    return known if told > EPOCH_LAST else LeaderEpoch(min(told, known + EPOCH_JUMP))
