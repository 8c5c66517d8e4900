"""One partition's log: append, read, flush, retention, truncation."""
