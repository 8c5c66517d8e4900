"""Producer state of a log: sequences, open and aborted transactions, snapshots."""
