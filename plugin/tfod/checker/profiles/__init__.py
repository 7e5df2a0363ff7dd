"""Profiles: the expected contents of records, built in or from a user's file.

Reads YAML, JSON or Python source, and returns a :class:`~tfod.checker.profiles.profile.Profile`.
May import ``formats`` and the packages below it, and the findings, rules and sources of the check.
"""
