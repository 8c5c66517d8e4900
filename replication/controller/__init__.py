"""The controller: cluster image, node registrations, topics, elections and in-sync sets."""
