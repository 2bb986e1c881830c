"""The files of a run: which they are, their bytes, how they are divided among tasks."""
