"""Files that each break one rule, and near misses that break none.

In the manner of veraPDF's corpus: the name of a file says which rule it is about and what is
expected.
"""
