"""Client processes of the cluster suite: `python -m bench.loads KIND`, one module per client library.

A peer's client runs in an environment of its own (bench/systems/requirements.txt), so these modules import nothing but
the standard library, the client library they measure, and each other.
"""
