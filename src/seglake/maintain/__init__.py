"""Check, repair, compact and vacuum an existing lake, and remove expired or unwanted data."""
