"""Requests of nodes to the active controller. Most values are events and answers of the controller itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from node.api.admin_requests import ChangedPartitions
from node.api.api import Api
from replication.controller.events import (
    AclsCreated,
    AclsDeleted,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    AlterScramCredentials,
    ClientQuotasAltered,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    ElectLeaders,
    FeaturesUpdated,
    Heartbeat,
    HeartbeatAnswer,
    ProducerIdBlock,
    Registered,
    RegisterNode,
    RemoveVoter,
    ScramCredentialsAltered,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    UpdateFeatures,
    VoterRemoved,
)
from tidelog.errors import TidelogError
from tidelog.types import LeaderEpoch, NodeId, PartitionEpoch, PartitionKey


@dataclass(frozen=True, slots=True)
class AcceptedIsr:
    """The state of a partition after an accepted proposal."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ProposalOutcome:
    """The outcome of one proposal: the resulting state, or why it was rejected."""

    key: PartitionKey
    outcome: AcceptedIsr | TidelogError


@dataclass(frozen=True, slots=True)
class AlterPartitionAnswer:
    """In the order of the proposals."""

    partitions: tuple[ProposalOutcome, ...]


CONTROLLER_REGISTER_NODE: Final = Api("Controller.RegisterNode", RegisterNode, Registered)
CONTROLLER_HEARTBEAT: Final = Api("Controller.Heartbeat", Heartbeat, HeartbeatAnswer)
CONTROLLER_ALTER_PARTITION: Final = Api("Controller.AlterPartition", AlterPartition, AlterPartitionAnswer)
CONTROLLER_ALLOCATE_PRODUCER_IDS: Final = Api("Controller.AllocateProducerIds", AllocateProducerIds, ProducerIdBlock)
CONTROLLER_CREATE_TOPIC: Final = Api("Controller.CreateTopic", CreateTopic, TopicCreated)
CONTROLLER_DELETE_TOPIC: Final = Api("Controller.DeleteTopic", DeleteTopic, TopicDeleted)
CONTROLLER_ELECT_LEADERS: Final = Api("Controller.ElectLeaders", ElectLeaders, ChangedPartitions)
CONTROLLER_ALTER_PARTITION_REASSIGNMENTS: Final = Api(
    "Controller.AlterPartitionReassignments", AlterReassignments, ChangedPartitions
)
CONTROLLER_INCREMENTAL_ALTER_CONFIGS: Final = Api("Controller.IncrementalAlterConfigs", AlterConfigs, TopicAltered)
CONTROLLER_CREATE_PARTITIONS: Final = Api("Controller.CreatePartitions", CreatePartitions, TopicAltered)
CONTROLLER_UPDATE_FEATURES: Final = Api("Controller.UpdateFeatures", UpdateFeatures, FeaturesUpdated)
CONTROLLER_REMOVE_VOTER: Final = Api("Controller.RemoveVoter", RemoveVoter, VoterRemoved)
CONTROLLER_ALTER_USER_SCRAM_CREDENTIALS: Final = Api(
    "Controller.AlterUserScramCredentials", AlterScramCredentials, ScramCredentialsAltered
)
CONTROLLER_CREATE_ACLS: Final = Api("Controller.CreateAcls", CreateAcls, AclsCreated)
CONTROLLER_DELETE_ACLS: Final = Api("Controller.DeleteAcls", DeleteAcls, AclsDeleted)
CONTROLLER_ALTER_CLIENT_QUOTAS: Final = Api("Controller.AlterClientQuotas", AlterClientQuotas, ClientQuotasAltered)
