"""Metrics and log output of a node."""
