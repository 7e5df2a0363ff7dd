"""The command ``tfod``: a module for each command, or for several that share their options.

The module of a command is imported when the command runs. It may import every other package.
"""
