"""What the driver does: it lists, plans, starts the tasks, commits and reports."""
