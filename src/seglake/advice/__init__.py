"""What Seglake notices about input, and how it says so.

`finding` has the values that code passes around. `words` is the only place with sentences about
them; nothing that reads, writes or stores records imports it.
"""
