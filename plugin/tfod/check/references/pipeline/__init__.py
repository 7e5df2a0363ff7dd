"""The trainer's configuration: its file goes in, what does not fit the data comes out.

It may import ``convert``, ``detection`` and what is below them, and the findings, rules and
records of the check.
"""
