"""All faults, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.chaos.faults import certificates, damage, disks, links, processes, resources, upgrades
from tests.chaos.faults.fault import Fault
from tests.chaos.schedule import Kind

_ALL: Final = (
    *processes.FAULTS,
    *links.FAULTS,
    *disks.FAULTS,
    *damage.FAULTS,
    *resources.FAULTS,
    *certificates.FAULTS,
    *upgrades.FAULTS,
)
FAULTS: Final[Mapping[str, Fault]] = {fault.kind.name: fault for fault in _ALL}
KINDS: Final = tuple(fault.kind for fault in _ALL)


def chosen(names: Sequence[str], cannot: Mapping[str, str]) -> tuple[Kind, ...]:
    """The kinds of these names, less what the runtime cannot do; no names: all kinds. Raises ValueError for a name that
    is unknown, and for one that was asked for and cannot be had."""
    for name in names:
        if name not in FAULTS:
            raise ValueError(f"there is no fault {name}: the faults are {', '.join(FAULTS)}")
        if name in cannot:
            raise ValueError(f"the fault {name} is impossible here: {cannot[name]}")
    return tuple(kind for kind in KINDS if (kind.name in names or not names) and kind.name not in cannot)
