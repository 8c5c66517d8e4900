"""An Iceberg table, through the classes of Iceberg that the Spark session has: its schema, its position, and commits.

The job uses Iceberg's catalogs and its log of snapshots, not its tables of Spark's SQL: one commit replaces the rows,
the position and nothing else, only if no other commit has added rows since the position was read. Spark's own Parquet
writer makes the files. It writes no ids of fields, so the table has a name mapping, by which readers find them.
Not here: which rows (table_rows.py), what a position is (table_position.py), which schemas follow another one
(table_schema.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.jobs.hadoop_files import HadoopDirectory
from tidelog.jobs.table_position import POSITION, SnapshotNote, position_of
from tidelog.jobs.table_schema import QUARANTINE, AddedField, IcebergType, SchemaChange, WidenedField

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PACKAGE: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""The newest there is. The job needs nothing of it that depends on the version of Spark."""
TOPIC: Final = "tidelog.topic"
"""The property that marks a table as one of this job: the name of its topic."""
NAME_MAPPING: Final = "schema.name-mapping.default"
REASON: Final = f"{QUARANTINE}.reason"
_CATALOG: Final = "spark.sql.catalog."
_CONFLICTS: Final = ("ValidationException", "CommitFailedException")
"""Errors of Iceberg after which a commit is known to have changed nothing."""


class IcebergCatalog:
    """A catalog of the Spark session."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        """Raises UnsupportedVersion if Spark has no Iceberg, InvalidConfig if it has no such catalog."""
        self._spark, self._name = spark, name
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise UnsupportedVersion("this job needs a classic Spark session: Spark Connect has no classes of Iceberg")
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            jvm.java.lang.Class.forName("org.apache.iceberg.CatalogUtil", False, loader)  # noqa: FBT003 - initialize
        except Exception as error:
            raise UnsupportedVersion(
                f"this Spark has no Iceberg: start the job with --conf spark.jars.packages={PACKAGE}, or have the jar "
                "in the session by --conf spark.jars or spark-submit --packages"
            ) from error
        prefix = f"{_CATALOG}{name}"
        settings = {
            key: value for key, value in _settings(spark).items() if key == prefix or key.startswith(f"{prefix}.")
        }
        if not settings:
            raise InvalidConfig(
                f"this Spark has no catalog {name!r}: name it as for Iceberg's own tables, for example --conf "
                f"{prefix}=org.apache.iceberg.spark.SparkCatalog --conf {prefix}.type=rest --conf "
                f"{prefix}.uri=https://catalog.example.com"
            )
        self.hadoop = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        options = jvm.java.util.HashMap()
        for key, value in settings.items():
            option = key.removeprefix(f"{prefix}.")
            if option.startswith("hadoop."):
                self.hadoop.set(option.removeprefix("hadoop."), value)
            elif key != prefix:
                options.put(option, value)
        self.iceberg: Any = jvm.org.apache.iceberg
        try:
            self._catalog = self.iceberg.CatalogUtil.buildIcebergCatalog(name, options, self.hadoop)
        except Exception as error:
            raise InvalidConfig(
                f"the catalog {name!r} cannot be used: {_cause(error)}; correct the settings {prefix}.*"
            ) from error

    def load(self, namespace: Sequence[str], table: str) -> IcebergTable | None:
        """The table; None if there is none."""
        identifier = self._identifier(namespace, table)
        if not self._catalog.tableExists(identifier):
            return None
        return IcebergTable(
            self._spark, self, ".".join((self._name, *namespace, table)), self._catalog.loadTable(identifier)
        )

    def create(self, namespace: Sequence[str], table: str, schema: IcebergType, topic: str) -> IcebergTable:
        """Make an empty table for a topic. Raises InvalidConfig if it is there."""
        columns = self.iceberg.SchemaParser.fromJson(json.dumps(schema))
        properties = self._spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
        properties.put(TOPIC, topic)
        self._create_namespace(namespace)
        try:
            self._catalog.createTable(
                self._identifier(namespace, table), columns, self.iceberg.PartitionSpec.unpartitioned(), properties
            )
        except Exception as error:
            if "AlreadyExists" not in _class_of(error):
                raise
            raise InvalidConfig(
                f"table {table} was created by another program meanwhile: start the job again"
            ) from error
        made = self.load(namespace, table)
        assert made is not None, "the catalog has just created it"
        return made

    def _create_namespace(self, namespace: Sequence[str]) -> None:
        try:
            names = self.iceberg.catalog.Namespace.of(self._texts(namespace))
            if not self._catalog.namespaceExists(names):
                self._catalog.createNamespace(names)
        except Exception as error:  # one job of two, or a catalog that has no namespaces
            if "AlreadyExists" not in _class_of(error) and "Method" not in str(error):
                raise

    def _identifier(self, namespace: Sequence[str], table: str) -> Any:
        return self.iceberg.catalog.TableIdentifier.of(self._texts((*namespace, table)))

    def _texts(self, texts: Sequence[str]) -> Any:
        gateway: Any = self._spark.sparkContext._gateway
        found = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
        for index, text in enumerate(texts):
            found[index] = text
        return found

    def mapping_of(self, schema: Any) -> str:
        """The name mapping of a schema: the ids of all its fields by their names."""
        mapping = self.iceberg.mapping
        return str(mapping.NameMappingParser.toJson(mapping.MappingUtil.create(schema)))


class IcebergTable:
    """A table, as it was when it was loaded or last committed to."""

    def __init__(self, spark: SparkSession, catalog: IcebergCatalog, name: str, table: Any) -> None:
        self.name = name
        self._spark, self._catalog, self._table = spark, catalog, table
        self._iceberg = catalog.iceberg

    @property
    def uuid(self) -> str:
        """Tells the table from a later one of its name."""
        return str(self._table.uuid().toString())

    @property
    def topic(self) -> str | None:
        """The topic that it is of; None: it is no table of this job."""
        return self._properties().get(TOPIC)

    @property
    def schema(self) -> IcebergType:
        """Its columns."""
        return json.loads(self._iceberg.SchemaParser.toJson(self._table.schema()))

    @property
    def is_partitioned(self) -> bool:
        """Whether its files are divided by values of columns."""
        return bool(self._table.spec().isPartitioned())

    def position(self) -> str | None:
        """The position behind its rows; None: it has none yet. Raises InvalidConfig if it is not known."""
        current = self._table.currentSnapshot()
        if current is not None and (said := current.summary().get(POSITION)) is not None:
            return str(said)  # without a look at each of perhaps 100,000 others
        return position_of(
            [
                SnapshotNote(each.snapshotId(), each.parentId(), each.summary().get(POSITION))
                for each in self._table.snapshots()
            ],
            None if current is None else current.snapshotId(),
            self._properties().get(POSITION),
            self.name,
        )

    def evolve(self, changes: Sequence[SchemaChange]) -> None:
        """Change the schema, in one commit. Raises InvalidConfig if another program has changed it."""
        transaction = self._table.newTransaction()
        update = transaction.updateSchema()
        for change in changes:
            match change:
                case AddedField(parent, name, kind):
                    update.addColumn(parent, name, self._type(kind))
                case WidenedField(path, _, kind):
                    update.updateColumn(path, self._type(kind))
        try:
            update.commit()
            transaction.commitTransaction()
        except Exception as error:
            if not _is_refused(error):
                raise
            raise self._another(_cause(error)) from error
        self._table.refresh()

    def ensure_mapping(self) -> None:
        """Let the name mapping be that of the schema. A catalog gives the fields of a new table ids of its own."""
        mapping = self._catalog.mapping_of(self._table.schema())
        if self._properties().get(NAME_MAPPING) != mapping:
            self._table.updateProperties().set(NAME_MAPPING, mapping).commit()
            self._table.refresh()

    def write(self, rows: DataFrame, compression: str) -> WrittenFiles:
        """Write files into the directory of the table. They belong to it once they are committed."""
        place = str(self._table.locationProvider().newDataLocation(f"tidelog-{uuid4().hex}"))
        writer = rows.write.option("compression", compression)
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(place)
        written = WrittenFiles(HadoopDirectory(self._spark, place))
        mapping = self._iceberg.mapping.NameMappingParser.fromJson(self._properties()[NAME_MAPPING])
        metrics_config = self._iceberg.MetricsConfig.forTable(self._table)
        reason = self._table.schema().findField(REASON)
        for uri, length in written.directory.walk():
            if not uri.endswith(".parquet"):
                continue
            metrics = self._iceberg.parquet.ParquetUtil.fileMetrics(
                self._table.io().newInputFile(uri), metrics_config, mapping
            )
            records = int(metrics.recordCount())
            if not records:
                continue  # a task without records
            builder = self._iceberg.DataFiles.builder(self._table.spec()).withPath(uri).withFormat("PARQUET")
            written.files.append(builder.withFileSizeInBytes(length).withMetrics(metrics).build())
            written.records += records
            written.bytes += length
            if reason is not None:
                nulls = metrics.nullValueCounts().get(reason.fieldId())
                if nulls is None:  # the table's settings keep no figures of the column: by default, of one behind 100
                    figures = self._iceberg.parquet.ParquetUtil.fileMetrics(
                        self._table.io().newInputFile(uri), self._figures_of(REASON), mapping
                    )
                    nulls = figures.nullValueCounts().get(reason.fieldId())
                written.quarantined += records - int(nulls)
        return written

    def commit(self, written: WrittenFiles | None, position: str) -> None:
        """Add files and set the position, in one commit, if no other commit has added rows since the position was read.
        Raises InvalidConfig if one has; the files are removed then. After another error it is not known whether they
        were added: the table says it."""
        current = self._table.currentSnapshot()
        transaction = self._table.newTransaction()
        rows = transaction.newOverwrite()
        for file in () if written is None else written.files:
            rows.addFile(file)
        # Without this a job that was replaced while it wrote would add its rows a second time.
        rows.conflictDetectionFilter(self._iceberg.expressions.Expressions.alwaysTrue()).validateNoConflictingData()
        if current is not None:
            rows.validateFromSnapshot(current.snapshotId())
        try:
            rows.set(POSITION, position).commit()
            transaction.updateProperties().set(POSITION, position).commit()
            transaction.commitTransaction()
        except Exception as error:
            if not _is_refused(error):
                raise
            if written is not None:
                written.directory.remove()
            raise self._another(_cause(error)) from error
        self._table.refresh()
        # A commit of another job between ours and the refresh would become the base of the next one.
        if self.position() != position:
            raise self._another("its position is another one than this job has just committed")

    def _figures_of(self, column: str) -> Any:
        """Settings that keep the number of values and nulls of one column, and nothing else."""
        settings = self._spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
        settings.put("write.metadata.metrics.default", "none")
        settings.put(f"write.metadata.metrics.column.{column}", "counts")
        return self._iceberg.MetricsConfig.fromProperties(settings)

    def _another(self, why: str) -> InvalidConfig:
        return InvalidConfig(
            f"another program writes to table {self.name}: {why}. This job has ended, and what it had committed is in "
            "the table: let one job at a time keep a table, and start this one again if the other has ended"
        )

    def _properties(self) -> Mapping[str, str]:
        return dict(self._table.properties())

    def _type(self, kind: IcebergType) -> Any:
        """A type of Iceberg, of its JSON."""
        one = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": kind}]}
        return self._iceberg.SchemaParser.fromJson(json.dumps(one)).findType("a")


@dataclass(slots=True)
class WrittenFiles:
    """Files of one batch that no table names yet."""

    directory: HadoopDirectory
    files: list[Any] = field(default_factory=list)
    """As Iceberg describes them."""
    records: int = 0
    bytes: int = 0
    quarantined: int = 0
    """Records with a reason in the column `quarantine`."""


def _settings(spark: SparkSession) -> dict[str, str]:
    """The settings of the session, and those of the application."""
    return {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}


def _is_refused(error: Exception) -> bool:
    """Whether a commit is known to have changed nothing."""
    return _class_of(error).endswith(_CONFLICTS)


def _class_of(error: Exception) -> str:
    """The class of an error of Java, else of Python."""
    raised = getattr(error, "java_exception", None)
    return type(error).__name__ if raised is None else str(raised.getClass().getName())


def _cause(error: Exception) -> str:
    """The first line of an error of Java."""
    raised = getattr(error, "java_exception", None)
    text = str(error if raised is None else raised.getMessage() or raised.getClass().getName())
    return text.strip().splitlines()[0].rstrip(".")[:300]
