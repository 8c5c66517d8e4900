"""Which topics the members of groups may describe: of the topics that match its pattern, a member is assigned these.

A view is not recorded, like timers and pushes: a member brings it with each heartbeat, and a machine that was just
loaded does not have it yet. Until then the member keeps its target assignment and gets nothing new by its pattern; the
last member whose view was missing in a target assignment causes another one. Views are asked only while a target
assignment is computed, and its outcome is recorded, so that a replay needs none.
"""

from __future__ import annotations

from collections.abc import Iterable

from replication.coordination.group_requests import VisibleTopics


class MemberViews:
    """The views of the members that have patterns, by group."""

    def __init__(self) -> None:
        self._views: dict[str, dict[str, VisibleTopics]] = {}
        self._missing: dict[str, set[str]] = {}
        """The members without a view in the last target assignment of their group that have brought none since."""

    def note(self, group_id: str, member_id: str, view: VisibleTopics) -> bool:
        """A member brings its view. Returns True if it was the last one that the target assignment lacks."""
        self._views.setdefault(group_id, {})[member_id] = view
        missing = self._missing.get(group_id, set())
        if member_id not in missing:
            return False
        missing.remove(member_id)
        return not missing

    def of(self, group_id: str, member_id: str) -> VisibleTopics | None:
        """The view of a member; None: unknown."""
        return self._views.get(group_id, {}).get(member_id)

    def note_assignment(self, group_id: str, missing: Iterable[str]) -> None:
        """A target assignment was computed without the views of these members."""
        found = set(missing)
        if found:
            self._missing[group_id] = found
        else:
            self._missing.pop(group_id, None)

    def forget_member(self, group_id: str, member_id: str) -> None:
        """The member is gone, which causes another target assignment, or has no pattern any more."""
        self._views.get(group_id, {}).pop(member_id, None)
        self._missing.get(group_id, set()).discard(member_id)

    def forget_group(self, group_id: str) -> None:
        """The group is gone."""
        self._views.pop(group_id, None)
        self._missing.pop(group_id, None)
