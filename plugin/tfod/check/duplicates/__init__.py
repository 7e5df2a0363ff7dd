"""What is remembered of each record: rows go in, records that repeat others come out.

It may import ``detection`` and what is below it, and the findings and rules of the check.
"""
