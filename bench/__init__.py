"""Benchmarks: `python -m bench SUITE`. Not part of the product; `bench.figure` defines the result of a suite."""
