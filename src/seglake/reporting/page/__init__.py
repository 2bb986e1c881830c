"""The HTML page of a report: its charts, its tables and the document with both."""
