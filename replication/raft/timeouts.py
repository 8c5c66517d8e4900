"""Timeouts of the metadata quorum."""

from __future__ import annotations

from typing import Final

from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class QuorumTimes:
    """Timeouts in milliseconds."""

    fetch_timeout: int = 1_000
    """A follower stands for election after this time, plus up to `jitter`, without an answer of the leader."""
    jitter: int = 1_000
    vote_timeout: int = 300
    """Duration of a round of votes, plus up to the same again; doubled for each further candidacy."""
    resend: int = 250
    """Interval at which vote requests and announcements of leadership or resignation are sent again."""
    succession: int = 300
    """Delay from one successor that a resigning leader names to the next."""
    refused: int = 30
    """A follower whose connections the leader's address refuses stands after this time, plus up to `refused_jitter`: by
    then the other voters have probed the address too."""
    refused_jitter: int = 120

    @property
    def check_quorum(self) -> int:
        """A leader from which no majority fetches for this long resigns (KIP-595: one and a half fetch timeouts). One
        that has lost its majority before is more patient: `PATIENCE`."""
        return self.fetch_timeout * 3 // 2


CALM_MS: Final = 60_000
PATIENCE: Final = 4
"""A leader that lost its majority waits so many times as long for it if it leads again within `CALM_MS`. On starved
cores the first fetches of an epoch take seconds: two voters would elect each other in turn, and neither would lead."""
DOUBLINGS_MAX: Final = 3
"""A round of votes becomes at most eight times as long as the first one: after a long network failure the election must
not wait for a long round."""
SUCCESSION_BEGINS_MS: Final = 50
"""Delay of the first successor: by then the other voters have received the resignation too."""
