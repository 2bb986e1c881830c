"""The demo: generate web events, ingest them, and look some up."""
