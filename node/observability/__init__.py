"""Metrics and log lines of a node."""
