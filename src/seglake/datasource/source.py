"""Provide the data source of Spark: its name, its schema, and readers made from options.

Every Spark session imports this module where Seglake is installed, even if it does not use it. So
the readers, which import the decoding of records, are imported only when they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING

from seglake.datasource.options import Options
from seglake.datasource.plain_errors import PlainErrors
from seglake.errors import ConfigError, UsageError
from seglake.extras import extra

with extra("spark", "the Spark data source"):
    import pyspark

    if pyspark.__version__ < "4":  # this module must not import a session
        raise ConfigError(
            f"the format seglake needs Spark 4.0 or newer, and this is {pyspark.__version__}. Use"
            " pyspark 4.2, or read with seglake.open in the tasks of mapPartitions"
        )
    from pyspark.errors import AnalysisException
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import ArrayType, DataType, StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglake.datasource.batch import SparkBatchReader
    from seglake.datasource.stream import SparkStreamReader

# Spark's types, by the names in Spark's JSON schemas, which `StructType.add` accepts.
_TYPES: dict[str, str | DataType] = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "integer", "offset": "long",
    "timestamp": "timestamp", "timestampType": "integer",
    "headers": ArrayType(StructType().add("key", "string").add("value", "binary")),
}  # fmt: skip
_FIELD_TYPES = {
    "string": "string", "json": "string", "bool": "boolean", "timestamp": "timestamp",
    "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "float32": "float",
    "float64": "double",
}  # fmt: skip


class SeglakeDataSource(DataSource):
    """The format "seglake". Raises UsageError, which names the option, for a wrong option."""

    @PlainErrors()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({})  # Spark sends the state to tasks, which need no passwords
        self._parsed = Options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "seglake"

    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source, or of the options `columns` and `fields`."""
        struct, fields = spark_struct(self._parsed.columns), self._parsed.fields
        for name, kind in () if fields is None else fields.kinds.items():
            struct.add(name, _FIELD_TYPES[kind])
        return struct

    @PlainErrors()
    def reader(self, schema: StructType) -> SparkBatchReader:
        """Return the reader of a batch query. Raises UsageError for options that it cannot have."""
        from seglake.datasource.batch import SparkBatchReader  # noqa: PLC0415  # see above

        self._require_own(schema)
        return SparkBatchReader(self._parsed)

    @PlainErrors()
    def streamReader(self, schema: StructType) -> SparkStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of a streaming query. Raises UsageError for options of batches.

        Raises ConfigError below Spark 4.2, which passes the start offset to `latestOffset`.
        """
        if pyspark.__version__ < "4.2":
            raise ConfigError(
                "a stream of the format seglake needs Spark 4.2, and this is"
                f" {pyspark.__version__}. Use pyspark 4.2, or read batches with spark.read and the"
                " options startTime and endTime"
            )
        from seglake.datasource.stream import SparkStreamReader  # noqa: PLC0415  # see above

        self._require_own(schema)
        return SparkStreamReader(self._parsed)

    def _require_own(self, schema: StructType) -> None:
        if schema.simpleString() != self.schema().simpleString():
            raise UsageError(
                "the format seglake has a fixed schema. Leave out .schema(…), and use the options"
                " columns and includeHeaders"
            )


def spark_struct(columns: Iterable[str]) -> StructType:
    """Return the Spark schema of these columns of the format."""
    struct = StructType()
    for name in columns:
        struct.add(name, _TYPES[name])
    return struct


def register(spark: SparkSession) -> None:
    """Register `format("seglake")` in a session whose driver has not found it by itself.

    Raises ConfigError if the Python of the session's workers has no Seglake.
    """
    from seglake.engine import require_seglake  # noqa: PLC0415  # see above

    require_seglake(spark)
    try:
        spark.dataSource.register(SeglakeDataSource)
    except AnalysisException as error:  # Spark 4.0 refuses a format that its driver has found
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
