"""Read records from a lake of segments: lookups, exact windows and fetches, in bounded memory.

No JVM is needed.
"""
