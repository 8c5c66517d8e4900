"""Changes inputs at random: what serves where there is no fuzzer that is guided by coverage."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

ODD = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)


def mutated(rng: Random, seeds: Sequence[bytes]) -> bytes:
    """A seed with some bytes flipped, set, cut out, repeated, or mixed with another seed."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4, 16))):
        at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice(ODD)
            case 2:
                del data[at : min(end, at + 8)]
            case 3:
                data[at:at] = data[at : min(end, at + 32)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(8))
            case _:
                other = rng.choice(seeds)
                data[at:] = other[rng.randint(0, len(other)) :]
    return bytes(data)
