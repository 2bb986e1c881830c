"""Infer a pipeline from input files, for `seglake init` and `seglake append`."""
