"""Infer a pipeline from files that have no description: `seglake init`."""
