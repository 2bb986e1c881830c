"""Map the names of input formats to their classes.

To add an input format, write a module with a subclass of `Format`, add it here, add its settings to
`seglake.config.input`, and describe it in `docs`.
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
