"""Remove records and rejects from topics by age, by size, or on request."""
