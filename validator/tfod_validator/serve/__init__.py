"""``tfod serve``: options and environment variables go in, running processes come out.

The room may import the settings and the service's logs; it starts the web server and the workers
by the names of their modules.
"""
