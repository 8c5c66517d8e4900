"""Coordinators: state machines over the partitions of internal topics that this node leads."""
