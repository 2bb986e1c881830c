"""The input formats by name.

A new input format is a module with a `Format`, a line here, its settings in `seglake.config.input`
and a page in `docs`.
"""

from seglake.write.rows.csv import Csv
from seglake.write.rows.jsonl import Jsonl
from seglake.write.rows.parquet import Parquet
from seglake.write.rows.rows import Format
from seglake.write.rows.text import Text

FORMATS: dict[str, Format] = {"jsonl": Jsonl(), "csv": Csv(), "text": Text(), "parquet": Parquet()}
