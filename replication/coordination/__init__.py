"""Coordination: the records of the coordinators' internal topics, and their formats."""
