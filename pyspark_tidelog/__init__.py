"""Spark finds data sources in packages named `pyspark_*`: so `spark.read.format("tidelog")` works unregistered."""

from tidelog.spark import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
