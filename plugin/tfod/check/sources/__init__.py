"""What is to be checked: paths, zips and URLs go in, datasets with their shards and label
maps come out.

It may import ``detection`` and what is below it, and the findings, rules and records of the check.
"""
