"""The command ``tfod``: arguments in, printed lines and an exit status out.

One module for each command.
It may import every other room; a command's module is imported when the command is typed.
"""
