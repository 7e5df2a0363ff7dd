"""What shards are compared with: a CVAT task, a trainer's configuration.

Their files go in, frozen dataclasses that rules look at come out. It may import ``convert`` and
what is below it, and of ``check`` the findings, the records and the rules that compare.
"""
