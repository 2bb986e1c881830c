"""Find problems of input, and describe them.

`finding` has the values that code passes around. `words` is the only module with sentences about
them, and no code that reads, writes or stores records imports it.
"""
