"""Files are divided into splits, which the map side groups into units."""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from seglake.config import Pipeline
from seglake.limits import REQUESTS
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.formats.registry import FORMATS


def plan_splits(files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> list[Split]:
    """Divide files into splits of `task.split_bytes`, as far as the input format allows.

    With `headers.source`, which counts lines from the beginning of a file, each file is one split.

    Raises:
        InputError: a file cannot be read, or the input format refuses these files for one run.
    """
    form, size = FORMATS[pipeline.input.format], pipeline.task.split_bytes
    form.check(files, store, pipeline)
    large = [] if pipeline.headers.source else [file for file in files if file.size > size]
    with ThreadPoolExecutor(REQUESTS) as pool:
        can_split = pool.map(lambda file: form.can_split(file, store, pipeline), large)
        divided = set(itertools.compress(large, can_split))
    splits: list[Split] = []
    for file in files:
        inner = range(size, file.size, size) if file in divided else range(0)
        edges = [0, *inner, file.size]
        splits += [
            Split(number, file, start, end)
            for number, (start, end) in enumerate(itertools.pairwise(edges), len(splits))
        ]
    return splits
