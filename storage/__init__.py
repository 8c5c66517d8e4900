"""The log of one partition in Kafka's file formats (`log/log.py`), and the log directory that holds many of them.

The package is synchronous: no network, no asyncio. Clock, randomness, disk and threads are constructor arguments.
docs/storage.md shows the file layouts and how the log survives each crash.
"""
