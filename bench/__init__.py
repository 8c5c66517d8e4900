"""Measurements: `python -m bench SUITE`. Users never import this; see `bench.figure` for what a suite yields."""
