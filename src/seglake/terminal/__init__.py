"""Text for people in a terminal or a notebook: tables, progress and wording."""
