"""Arguments of commands: shared options, their help, and times."""
