"""Commands of a topic's lifecycle: what goes, what stays."""
