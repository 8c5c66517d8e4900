"""What clients use for network, time and chance if they are not given it: that of the context in which they are made.

None in a real program: each client then has the network, the clocks and the randomness of the machine. A simulated
world sets it for each of its processes, so that programs run in it as they are.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Final

from tidelog.clock import Clock
from tidelog.protocol.network import Transport


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of one process. Its clients share the transport, which its owner closes."""

    transport: Transport
    clock: Clock
    rng: Random


SURROUNDINGS: Final[ContextVar[Surroundings | None]] = ContextVar("surroundings of Tidelog's clients", default=None)
