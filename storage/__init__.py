"""One partition's log on one machine's disk, in Kafka's files: `log/log.py`, and the log directory that holds many.

Synchronous: no network, no asyncio. Clock, chance, disk and threads come in by constructors. docs/storage.md draws the
layouts and says how each crash is survived.
"""
