"""The PySpark data source `spark.read.format("tidelog")`, without a JVM jar.

Executors need only `tidelog[spark]`. Spark finds the source through the package `pyspark_tidelog`.
"""

from tidelog.spark.source import TidelogDataSource
from tidelog.spark.streaming.source_progress import offsets_behind_latest

__all__ = ["TidelogDataSource", "offsets_behind_latest"]
