"""`seglake demo`: web events to try Seglake with, ingested and looked up."""
