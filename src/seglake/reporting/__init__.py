"""What a lake looks like: its figures, what is wrong with it, a page to look at, metrics."""
