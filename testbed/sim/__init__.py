"""The simulator: whole clusters and their clients inside one process and one thread, in virtual time
(docs/simulator.md)."""
