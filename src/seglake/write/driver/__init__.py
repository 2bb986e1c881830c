"""Drive a run. The driver lists the input, plans, starts the tasks, commits and reports."""
