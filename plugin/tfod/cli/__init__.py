"""The command ``tfod``: arguments in, printed lines and an exit status out.

A module for each command, or for some that share their options.
It may import every other room; a command's module is imported when the command is typed.
"""
