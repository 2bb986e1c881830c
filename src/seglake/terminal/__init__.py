"""Format tables, progress and wording for people in a terminal or a notebook."""
