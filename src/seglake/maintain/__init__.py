"""Work on a lake that stands: new index files, checks, repair, removal of what is unused."""
