"""Commands of a topic's lifecycle: retention, compaction, merges, undo, erasure, settings."""
