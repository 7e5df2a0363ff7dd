"""References that shards are compared with: a CVAT task, a trainer's configuration.

Reads their files to frozen dataclasses for the rules, and matches images with the frames of a task.
May import ``formats`` and the packages below it, and the findings and the records of ``checker``.
"""
