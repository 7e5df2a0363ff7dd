"""A report goes in; text, JSON, JUnit XML, an HTML page, and images with their boxes come out.

May import the rest of ``checker``, but for the check itself, and the rooms below ``checker``.
"""
