"""Counters that the request path adds to, and that a scrape reads: plain integers, without locks or labels."""
