"""Turn rows of input files into records, or into rejects with a reason."""
