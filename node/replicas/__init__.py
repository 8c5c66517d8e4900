"""The replicas of one node: partitions, fetch sessions, fetchers, and their logs."""
