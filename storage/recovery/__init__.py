"""Loading a log: after a clean stop by checking its end, else by reading the data on the disk."""
