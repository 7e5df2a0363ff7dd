"""The Flask service: checks uploads and returns reports, as pages and as JSON.

May import ``tfod.checker`` and the packages that it imports. Only ``tfod serve`` imports it.
"""
