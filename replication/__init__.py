"""Replication rules: leadership, in-sync sets, commitment. Pure state machines without I/O or asyncio.

Events go in, effects come out; `node/` drives them. The controller is described in docs/metadata.md.
"""
