"""The main job, end to end: `make demo`. Start at __main__.py."""
