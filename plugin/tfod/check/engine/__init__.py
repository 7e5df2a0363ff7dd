"""How a check runs: inputs planned and shared among processes, results that add up.

It may import the rest of ``check``, but for its reporters.
"""
