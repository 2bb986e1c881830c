"""Lookups, exact windows and fetches in a lake of segments: no Spark, no JVM, bounded memory."""
