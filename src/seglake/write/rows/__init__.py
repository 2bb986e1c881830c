"""Convert the rows of input files to records, or to rejects with a reason."""
