"""Groups: the state machine of one partition of `__consumer_offsets` (KIP-848)."""
