"""Files where Spark keeps them: local, HDFS, S3 and whatever else the session has a file system for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import InvalidConfig, UnsupportedVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile("([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_LOCAL_URI: Final = re.compile("file:(?://)?(/(?!/).*)", re.IGNORECASE)
_CHOSEN_BY: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT")
"""Variables that may lead to a default file system other than the local one. The last one is set by spark-submit."""
_DEFAULT_FILE_SYSTEM: Final = frozenset({"spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name"})


def local_path(text: str, conf: Sequence[tuple[str, str]]) -> Path | None:
    """The path as Spark will read it, if it is surely in the file system of this machine; else None: Spark must be
    asked. conf: settings of Spark that the job was given. Does not start Spark."""
    if _SCHEME.match(text):
        found = _LOCAL_URI.fullmatch(text)
        return Path(found[1]) if found else None
    if any(os.environ.get(name) for name in _CHOSEN_BY) or any(name in _DEFAULT_FILE_SYSTEM for name, _ in conf):
        return None
    if find_spec("pyspark") is not None:
        from pyspark import SparkContext

        if getattr(SparkContext, "_active_spark_context", None) is not None:
            return None
    return Path(text)


class HadoopDirectory:
    """A directory, which may not exist yet. Raises InvalidConfig if Spark has no file system for it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise UnsupportedVersion("this job needs a classic Spark session: Spark Connect gives it no file systems")
        try:
            given = self._jvm.org.apache.hadoop.fs.Path(path)
            configuration = spark.sparkContext._jsc.hadoopConfiguration()
            self._files: Any = given.getFileSystem(configuration)
            self._root: Any = given.makeQualified(self._files.getUri(), self._files.getWorkingDirectory())
        except Exception as error:
            cause = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise InvalidConfig(f"Spark cannot use the path {path!r}: {cause}") from error

    @property
    def uri(self) -> str:
        """The directory with its file system."""
        return str(self._root.toString())

    def child(self, name: str) -> str:
        """The URI of a file or directory in it."""
        return str(self._path(name).toString())

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file or directory in it, or itself."""
        return bool(self._files.exists(self._path(name)))

    def read_text(self, name: str) -> str:
        """The text of a file in it, in UTF-8."""
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, name: str, text: str) -> None:
        """Write a file that is not there yet: whole, or not at all. Raises InvalidConfig if it is there."""
        part = self._path(f"{name}.part")
        stream = self._files.create(part, True)  # noqa: FBT003 - overwrite
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if self.exists(name) or not self._files.rename(part, self._path(name)):
            raise InvalidConfig(f"{self.child(name)} appeared meanwhile: another job has the same target; use one job")

    def names(self, name: str) -> list[str]:
        """The names in a directory in it; none if it does not exist."""
        if not self.exists(name):
            return []
        return [str(each.getPath().getName()) for each in self._files.listStatus(self._path(name))]

    def walk(self) -> Iterator[tuple[str, int]]:
        """All files below it: the URI and the bytes of each."""
        if not self.exists():
            return
        found = self._files.listFiles(self._root, True)  # noqa: FBT003 - recursive
        while found.hasNext():
            each = found.next()
            yield str(each.getPath().toString()), int(each.getLen())

    def remove(self) -> None:
        """Delete it with all that is in it."""
        self._files.delete(self._root, True)  # noqa: FBT003 - recursive

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root
