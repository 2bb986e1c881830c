"""What errors say of runs."""

from shlex import quote


def history_command(root: str, topic: str) -> str:
    """The command that lists the runs of a topic."""
    return f"`seglake history {quote(root)} --topic {topic}` lists the runs"
