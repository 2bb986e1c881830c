"""Find problems in input, and describe each problem and its remedy as a sentence.

`observe` finds problems in a chunk, `conclude` combines the findings of a run, and `finding` has
the sentences.
"""
