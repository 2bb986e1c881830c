"""The arguments of commands: options, times."""
