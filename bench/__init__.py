"""Benchmarks: `python -m bench SUITE`. Not part of the product; `bench.figure` defines the result of a suite."""

import tidelog as _tidelog  # noqa: F401 (sets gRPC's environment variables before gRPC is imported)
