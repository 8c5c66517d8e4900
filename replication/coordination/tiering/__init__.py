"""The coordinator of remote segments: which leader may copy and delete segments of a partition (KIP-405)."""
