"""The metadata quorum: Raft in Kafka's pull form (KIP-595), as a state machine."""
