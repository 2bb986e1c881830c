"""Lookups, exact windows and fetches in a lake of segments, in bounded memory, without a JVM."""
