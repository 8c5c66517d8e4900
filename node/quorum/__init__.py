"""The metadata quorum on disk and on the wire: the driver of `replication/raft`."""
