"""A log directory and the logs in it: loading, deletion, group commit, maintenance, scrub."""
