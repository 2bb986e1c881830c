"""What commands are given: options, their old spellings, times."""
