"""Output of commands: streams, progress, files, and records as text."""
