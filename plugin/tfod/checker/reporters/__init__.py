"""Reporters: a report as text, JSON, JUnit XML, an HTML page, and images with their boxes.

May import the rest of ``checker`` except for ``checker.check``, and the packages below ``checker``.
"""
