"""PySpark's daemon with tidelog loaded: workers that it forks, for example after failures, need not load it."""

import pyarrow as pa  # noqa: F401
from pyspark import daemon, worker  # noqa: F401

import tidelog.spark  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
