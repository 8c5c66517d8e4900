"""The fixtures of `tidelog.testing`, which pytest does not find in a checkout: that has no entry points."""

from tidelog.testing.plugin import (
    tidelog_cluster,
    tidelog_cluster_options,
    tidelog_node,
    tidelog_session_cluster,
    tidelog_topic,
)

__all__ = [
    "tidelog_cluster",
    "tidelog_cluster_options",
    "tidelog_node",
    "tidelog_session_cluster",
    "tidelog_topic",
]
