"""A partition's leader and follower, each a state machine for one leader epoch."""
