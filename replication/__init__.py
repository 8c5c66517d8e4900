"""Who leads, who is in sync, what is committed: pure state machines, no I/O, no asyncio.

Events go in, effects come out; `node/` drives them. docs/metadata.md tells of the controller.
"""
