"""Copies closed segments of the partitions on this node to the object store, and knows which are there."""
