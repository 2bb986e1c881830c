"""Map the names of input formats to their classes.

A new input format is a module with a `Format`, a line here, its settings in `seglake.config.input`
and a page in `docs`.
"""

from seglake.write.rows.formats.avro import Avro
from seglake.write.rows.formats.csv import Csv
from seglake.write.rows.formats.jsonl import Jsonl
from seglake.write.rows.formats.parquet import Parquet
from seglake.write.rows.formats.text import Text
from seglake.write.rows.rows import Format

FORMATS: dict[str, Format] = {
    "jsonl": Jsonl(), "csv": Csv(), "text": Text(), "parquet": Parquet(), "avro": Avro(),
}  # fmt: skip
