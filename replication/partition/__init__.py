"""The leader and the follower of a partition: one state machine each, for one leader epoch."""
