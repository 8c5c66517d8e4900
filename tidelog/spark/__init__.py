"""The PySpark data source: `spark.read.format("tidelog")`, no JVM jar.

Executors need only `tidelog[spark]` installed; the source is found by itself through the package `pyspark_tidelog`.
"""

from tidelog.spark.source import TidelogDataSource

__all__ = ["TidelogDataSource"]
