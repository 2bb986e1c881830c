"""A Delta table of the events around the rows of another: what the job `around` makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seglake.datasource.around import events_around
from seglake.errors import UsageError
from seglake.extras import extra
from seglake.session import spark_session

with extra("spark", "a table of events"):
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

if TYPE_CHECKING:
    from seglake.read.log import Log


def make_table(rows: str, output: str, log: Log, at: str, **around: Any) -> int:
    """Write `events_around` of the Delta table `rows` to `output`. Returns the number of pairs.

    Raises UsageError for a table or a column that there is not, or an output that there is, and
    what `events_around` and `spark_session` raise.
    """
    counted = Observation()
    try:
        read = spark_session("seglake around").read.format("delta").load(rows)
        read = read.repartitionByRange(at)  # what lies near in time shares what it reads
        found = events_around(read, log, at, **around)
        found = found.observe(counted, count(lit(1)).alias("pairs"))
        found.write.format("delta").save(output)
    except AnalysisException as error:
        raise UsageError(str(error)) from error
    return int(counted.get["pairs"])
