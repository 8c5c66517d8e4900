"""The Spark sink: batch and streaming writes, exactly once by transactions (docs/spark.md, docs/decisions/0021)."""
