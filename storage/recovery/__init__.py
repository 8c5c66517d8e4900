"""Opening a log: after a clean stop by a look at its end, else by reading what the disk has."""
