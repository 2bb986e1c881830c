"""Drive a run: list the input, plan, start the tasks, commit and report."""
