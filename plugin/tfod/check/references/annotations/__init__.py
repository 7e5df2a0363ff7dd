"""The annotations that shards were made from: their files go in, what the records lack or
have besides comes out.

It may import ``detection`` and what is below it, and the findings, rules and records of the check.
"""
