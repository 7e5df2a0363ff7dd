"""Search and reading of sources, for every command: files, datasets, label maps and formats.

May import ``detection`` and the packages below it.
"""
