"""What a record is expected to hold: the ready profiles, and those that a user's file describes.

YAML, JSON or Python source goes in, a :class:`~tfod.checker.profiles.profile.Profile` comes out. It
may import ``formats`` and what is below it, and the findings, rules and sources of the check.
"""
