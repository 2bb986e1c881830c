"""The data source as Spark knows it: a name, a schema, and readers made from options.

Spark imports this in every session of a machine that has Seglake installed, also in those that do
not use it. So what decodes records is imported by the readers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from seglake.datasource.options import parse
from seglake.datasource.plain import plain_errors
from seglake.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglake.datasource.batch import BlockSearch
    from seglake.datasource.stream import StreamReader

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class SeglakeDataSource(DataSource):
    """The format "seglake". Options are checked when it is made: UsageError names what is wrong."""

    @plain_errors
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__({})  # tasks get what this holds, and need no passwords of a broker
        self._parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "seglake"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source, or those of them that `columns` names."""
        return struct_of(self._parsed.columns)

    @plain_errors
    def reader(self, schema: StructType) -> BlockSearch:
        """What plans and reads a batch query; UsageError for options that only streams have."""
        from seglake.datasource.batch import BlockSearch  # noqa: PLC0415  # see the module's text

        self._require_own(schema)
        return BlockSearch(self._parsed)

    @plain_errors
    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802  # Spark's name
        """What plans and reads micro-batches; UsageError for options that only batches have."""
        from seglake.datasource.stream import StreamReader  # noqa: PLC0415  # see the module's text

        self._require_own(schema)
        return StreamReader(self._parsed)

    def _require_own(self, schema: StructType) -> None:
        if schema.simpleString() != self.schema().simpleString():
            raise UsageError(
                "the format seglake has a fixed schema: leave out .schema(…), and use the options"
                " columns and includeHeaders"
            )


def struct_of(columns: Iterable[str]) -> StructType:
    """The schema of some columns of the format."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def register(spark: SparkSession) -> None:
    """Make `format("seglake")` known to a session whose driver did not find it by itself."""
    spark.dataSource.register(SeglakeDataSource)
