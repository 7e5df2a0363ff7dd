"""``tfod serve``: options go in; running processes, their logs and metrics come out.

The room prepares what gunicorn needs, which forks the web processes and the workers.
"""
