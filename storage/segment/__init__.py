"""One segment of a log with its four indexes, the segments of one log, and the leader epoch cache."""
