"""Arguments of commands: shared options, other names of options, and times."""
