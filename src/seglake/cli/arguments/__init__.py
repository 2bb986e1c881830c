"""The arguments of commands: options, their old names, times."""
