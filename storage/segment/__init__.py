"""One segment of a log and its four indexes, the segments of one log, and the leader epoch cache over them."""
