"""The metadata quorum's driver: connects `replication/raft` to disk, network and clock."""
