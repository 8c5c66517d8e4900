"""Transactions on a node: the driver of the coordinators' machines, markers, and verification by leaders."""
