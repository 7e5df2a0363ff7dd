"""``tfod serve``: options go in; running processes, their logs and metrics come out.

The room may import the settings; it starts the web server and the workers by the names of their
modules.
"""
