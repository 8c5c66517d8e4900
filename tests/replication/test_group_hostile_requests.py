"""Requests with any values: each is answered by a value or a typed error, and every record can be written and read."""

from __future__ import annotations

from itertools import count
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from replication.coordination.classic_requests import (
    AnsweredLater,
    ClassicHeartbeat,
    ClassicHeartbeatAnswer,
    DescribeClassicGroups,
    DescribeClassicGroupsAnswer,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    MemberAssignment,
    MemberJoin,
    MemberSync,
    SyncGroup,
    SyncGroupAnswer,
)
from replication.coordination.group_records import GROUP_RECORDS, ClassicProtocol, TopicPartitions
from replication.coordination.group_requests import (
    CommittedPartitions,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroups,
    DeleteGroupsAnswer,
    DescribeGroups,
    DescribeGroupsAnswer,
    ListGroups,
    ListGroupsAnswer,
    MemberHeartbeat,
    MemberNudged,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    TxnOffsetCommit,
)
from tests.replication.group_stories import Coordinator, topic_id
from tidelog.errors import TidelogError
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId


def _is_utf8(text: str) -> bool:
    """As all strings of messages are."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


INT32 = st.one_of(st.integers(-3, 3), st.integers(-(1 << 31), (1 << 31) - 1))
INT64 = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))
INT16 = st.one_of(st.integers(-3, 3), st.integers(-(1 << 15), (1 << 15) - 1))
NAMES = st.one_of(st.sampled_from(["", "g", "m", "t", "u"]), st.text(max_size=5).filter(_is_utf8))
INDEX = INT32.map(PartitionIndex)
IDS = st.sampled_from([UUID(int=0), topic_id("t"), UUID(int=5)])
OWNED = st.lists(st.builds(TopicPartitions, IDS, st.lists(INDEX, max_size=3).map(tuple)), max_size=3).map(tuple)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), strategy)


HEARTBEATS = st.builds(
    MemberHeartbeat,
    st.builds(
        ConsumerGroupHeartbeat,
        NAMES,
        NAMES,
        INT32,
        maybe(NAMES),
        maybe(NAMES),
        INT32,
        maybe(st.lists(NAMES, max_size=3).map(tuple)),
        maybe(st.one_of(NAMES, st.sampled_from([".*", "(", "t|u"]))),
        maybe(st.sampled_from(["uniform", "range", "", "x"])),
        maybe(OWNED),
    ),
    NAMES,
    NAMES,
)
COMMITS = st.lists(
    st.builds(OffsetToCommit, NAMES, INDEX, INT64.map(Offset), INT32.map(LeaderEpoch), NAMES, maybe(IDS.map(TopicId))),
    max_size=4,
).map(tuple)
NAMED = st.lists(st.builds(NamedPartition, NAMES, INDEX), max_size=4).map(tuple)
GROUPS = st.lists(NAMES, max_size=4).map(tuple)
TICKETS = count(1)
JOINS = st.builds(
    lambda request, name, new: MemberJoin(request, next(TICKETS), name, name, new),
    st.builds(
        JoinGroup,
        NAMES,
        NAMES,
        maybe(NAMES),
        NAMES,
        st.lists(st.builds(ClassicProtocol, NAMES, st.binary(max_size=3)), max_size=3).map(tuple),
        st.one_of(st.just(10_000), INT32),
        INT32,
        st.booleans(),
        st.booleans(),
    ),
    NAMES,
    st.uuids().map(str),
)
SYNCS = st.builds(
    lambda request: MemberSync(request, next(TICKETS)),
    st.builds(
        SyncGroup,
        NAMES,
        NAMES,
        INT32,
        maybe(NAMES),
        maybe(NAMES),
        maybe(NAMES),
        st.lists(st.builds(MemberAssignment, NAMES, st.binary(max_size=3)), max_size=3).map(tuple),
    ),
)
REQUESTS = st.one_of(
    HEARTBEATS,
    JOINS,
    SYNCS,
    st.builds(ClassicHeartbeat, NAMES, NAMES, INT32, maybe(NAMES)),
    st.builds(LeaveGroup, NAMES, st.lists(st.builds(LeavingMember, NAMES, maybe(NAMES)), max_size=3).map(tuple)),
    st.builds(DescribeClassicGroups, st.lists(NAMES, max_size=4).map(tuple)),
    st.builds(MemberNudged, NAMES, NAMES),
    st.builds(OffsetCommit, NAMES, NAMES, INT32, maybe(NAMES), COMMITS),
    st.builds(TxnOffsetCommit, NAMES, INT64.map(ProducerId), INT16, INT16, NAMES, NAMES, INT32, maybe(NAMES), COMMITS),
    st.builds(OffsetFetch, NAMES, NAMES, INT32, maybe(NAMED), st.booleans()),
    st.builds(OffsetDelete, NAMES, NAMED),
    st.builds(ListGroups, GROUPS, GROUPS),
    st.builds(DescribeGroups, GROUPS),
    st.builds(DeleteGroups, GROUPS),
)
ANSWERS = {
    MemberHeartbeat: ConsumerGroupHeartbeatAnswer,
    MemberNudged: ConsumerGroupHeartbeatAnswer | None,
    MemberJoin: JoinGroupAnswer | AnsweredLater,
    MemberSync: SyncGroupAnswer | AnsweredLater,
    ClassicHeartbeat: ClassicHeartbeatAnswer,
    LeaveGroup: LeaveGroupAnswer,
    DescribeClassicGroups: DescribeClassicGroupsAnswer,
    OffsetCommit: CommittedPartitions,
    TxnOffsetCommit: CommittedPartitions,
    OffsetFetch: OffsetFetchAnswer,
    OffsetDelete: CommittedPartitions,
    ListGroups: ListGroupsAnswer,
    DescribeGroups: DescribeGroupsAnswer,
    DeleteGroups: DeleteGroupsAnswer,
}


@settings(max_examples=300, deadline=None)
@given(st.lists(REQUESTS, max_size=12))
def test_any_request_is_answered_and_what_it_writes_can_be_read(requests: list[object]) -> None:
    coordinator = Coordinator({"t": 2, "u": 1})
    for request in requests:
        decision = coordinator.machine.handle(request, coordinator.now)
        assert isinstance(decision.answer, ANSWERS[type(request)] | TidelogError)
        for record in decision.records:
            key, value = GROUP_RECORDS.encode(record)
            assert GROUP_RECORDS.decode(key, value) == record
        coordinator.commit(decision)
        coordinator.settle()
        coordinator.pass_time(1)
