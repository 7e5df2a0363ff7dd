"""The Flask service: uploads and their options go in, reports come out, as pages and as JSON.

It stands on top: it may import ``tfod.checker`` and what that imports, and nothing imports it but
``tfod serve``.
"""
