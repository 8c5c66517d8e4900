"""Nodes that break a rule of damage: what survives a restart, what is told of it, what may be given up."""

from __future__ import annotations

from typing import Any

from storage import folder_identity, kept_copy, salvage
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


def a_damaged_log_ends_at_its_damage(patch: Patch) -> None:
    """Of a damaged log that is elected all goes that lies behind the damage."""
    sound = salvage.Salvage._sound

    def cut(self: Any, file: Any, base: int, behind: int) -> Any:
        found, whole = sound(self, file, base, behind)
        kept: list[Any] = []
        for batch in found:
            if batch.first != (kept[-1].last + 1 if kept else base):
                break
            kept.append(batch)
        return kept, whole

    patch.setattr(salvage.Salvage, "_sound", cut)


def nothing_is_kept_of_what_is_given_up(patch: Patch) -> None:
    """What an unclean election costs is gone from the disk too."""
    patch.setattr(salvage, "keep_copy", lambda *_: None)
    patch.setattr(kept_copy, "keep_copy", lambda *_: None)
