"""The driver of a run: it lists the input, plans, starts the tasks, commits and reports."""
