"""Streaming analytics of log lines: counts in windows of time, bursts of errors, top talkers."""
