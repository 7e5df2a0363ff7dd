"""What shards are compared with: a CVAT task, a trainer's configuration.

Their files go in, frozen dataclasses that rules look at come out; and which frame of a task each
image goes to. It may import ``formats`` and what is below it, and of ``checker`` the findings and
the records.
"""
