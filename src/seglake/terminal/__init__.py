"""What people read in a terminal or a notebook: tables, progress and wording."""
