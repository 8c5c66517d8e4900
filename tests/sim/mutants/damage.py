"""Nodes that break a rule of damage: what survives a restart, what is told of it, what may be given up."""

from __future__ import annotations

from typing import Any

from storage import folder_identity
from tests.sim.mutants.mutant import Patch


def a_clean_stop_counts_for_nothing(patch: Patch) -> None:
    """After a reboot a page-cache replica counts as lost, though its node was stopped cleanly."""
    begin, read = folder_identity.FolderIdentity.__init__, folder_identity.FolderIdentity._read_registration

    def reading(self: Any) -> Any:
        number, self.boot_found = read(self)
        return number, self.boot_found

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        self.intact = self.boot_found == self._boot

    patch.setattr(folder_identity.FolderIdentity, "_read_registration", reading)
    patch.setattr(folder_identity.FolderIdentity, "__init__", beginning)
