"""A pipeline file that is drafted from the files it is to read."""
