"""The node's replica of the metadata log, its snapshots, and their encoding."""
