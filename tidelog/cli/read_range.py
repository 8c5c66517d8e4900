"""Which records `tidelog consume` prints: where it begins and where it ends in each partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.declared import Option
from tidelog.cli.moments import HELP as TIME_HELP
from tidelog.cli.moments import moment_of
from tidelog.client.admin import Admin
from tidelog.client.consumer import Place
from tidelog.client.offset_lookup import since_1970_ms
from tidelog.clock import MachineClock
from tidelog.errors import OffsetOutOfRange
from tidelog.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """The options for it."""

    start: Annotated[
        str | None,
        Option(
            "--from",
            help=f"earliest, latest, or a time: {TIME_HELP}.",
            show_default="earliest",
            yields_to=("offset", "last"),
        ),
    ] = None
    end: Annotated[
        str | None,
        Option("--to", help="Stop before the first record at or after this time.", yields_to=("to_offset", "follow")),
    ] = None
    offset: Annotated[
        int | None,
        Option(
            "--offset",
            "-o",
            help="Start at this offset, without --from; needs one --partition.",
            yields_to=("start", "last"),
        ),
    ] = None
    to_offset: Annotated[int | None, Option("--to-offset", help="Stop before this offset; needs one --partition.")] = (
        None
    )
    last: Annotated[
        int | None,
        Option(
            "--last",
            "-l",
            min=1,
            help="Only the last records: this number of each partition.",
            yields_to=("start", "offset"),
        ),
    ] = None
    follow: Annotated[
        bool,
        Option("--follow", help="Wait for new records at the end.", yields_to=("exits", "end", "to_offset")),
    ] = False
    exits: Annotated[bool, Option("--exit", "-e", help="Stop at the present end (the default).")] = False

    def ensure_consistent(self, partitions: int | None) -> None:
        """Raise WrongUsage for options that contradict each other. partitions: how many are named; None: all."""
        if self.follow and (self.exits or self.end is not None or self.to_offset is not None):
            raise WrongUsage("--follow never ends: leave it out, or --exit, --to and --to-offset")
        places = {"--from": self.start, "--offset": self.offset, "--last": self.last}
        given = [name for name, value in places.items() if value is not None]
        if self.offset is not None and self.offset < 0:
            raise WrongUsage(f"--offset {self.offset}: offsets begin at 0; the last records are --last {-self.offset}")
        if len(given) > 1:
            raise WrongUsage(f"{' and '.join(given)} are two places to start at: leave out one of them")
        if self.end is not None and self.to_offset is not None:
            raise WrongUsage("--to and --to-offset are two places to stop at: leave out one of them")
        if partitions != 1 and (self.offset is not None or self.to_offset is not None):
            name = "--offset" if self.offset is not None else "--to-offset"
            raise WrongUsage(f"{name} needs one partition: pass it with --partition")

    def ensure_for_group(self, group: str, *, has_partitions: bool) -> None:
        """Raise WrongUsage for options that a member of a group cannot have."""
        if group == "":
            raise WrongUsage("--group is empty: pass the id of a group")
        others = (self.offset, self.to_offset, self.last, self.end)
        if has_partitions or any(each is not None for each in others):
            raise WrongUsage(
                "a group assigns partitions and has offsets of its own: leave out --partition, --offset, --last, --to, "
                "--to-offset"
            )

    def reset(self) -> str | timedelta:
        """Where a group without committed offsets begins. Raises WrongUsage."""
        place = _place("--from", self.start or "earliest")
        if isinstance(place, datetime):
            back_ms = MachineClock().wall_ms() - since_1970_ms(place)
            return timedelta(milliseconds=max(0, back_ms))
        return str(place)

    def checked(self) -> None:
        """Raise WrongUsage for times that are none, before anything is sent."""
        for option, text in (("--from", self.start), ("--to", self.end)):
            if text is not None:
                _place(option, text)

    async def find(
        self, admin: Admin, partitions: list[TopicPartition], ends: Mapping[TopicPartition, Offset]
    ) -> Mapping[TopicPartition, tuple[Place, Offset]]:
        """Where to begin in each partition, and before which offset to stop. ends: of the logs now. Raises
        OffsetOutOfRange."""
        starts: Mapping[TopicPartition, Place]
        if self.offset is not None:
            (partition,) = partitions
            (first,) = (await admin.list_offsets(partitions, "earliest")).values()
            if self.offset > ends[partition]:
                raise OffsetOutOfRange(f"offset {self.offset} is above the end {ends[partition]} of {partition}")
            if 0 <= self.offset < first:
                raise OffsetOutOfRange(
                    f"offset {self.offset} is below the start {first} of {partition}: records before it were deleted; "
                    "--from earliest begins there"
                )
            starts = {partition: self.offset}
        elif self.last is not None:
            starts = dict(ends)  # only what the partitions have tells where it begins
        else:
            starts = dict.fromkeys(partitions, _place("--from", self.start or "earliest"))
        stops: dict[TopicPartition, Any] = dict(ends)
        if self.to_offset is not None:
            stops = {key: min(end, self.to_offset) for key, end in ends.items()}
        elif self.end is not None:
            limit = _place("--to", self.end)
            assert isinstance(limit, datetime), "it was checked"
            found = await admin.list_offsets(partitions, limit)
            stops = {key: min(end, found[key]) for key, end in ends.items()}
        return {key: (starts[key], stops[key]) for key in partitions}


def _place(option: str, text: str) -> Place:
    if option == "--from":
        if text == "earliest":
            return "earliest"
        if text == "latest":
            return "latest"
    moment = moment_of(text, MachineClock().wall_ms())
    if moment is None:
        words = "earliest, latest, or a time" if option == "--from" else "a time"
        raise WrongUsage(f"{option} {text!r}: use {words}: {TIME_HELP}")
    return moment
