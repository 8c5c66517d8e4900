"""The PySpark data source `spark.read.format("tidelog")`, without a JVM jar.

Executors need only `tidelog[spark]`. Spark finds the source through the package `pyspark_tidelog`.
"""

from tidelog.spark.source import TidelogDataSource

__all__ = ["TidelogDataSource"]
