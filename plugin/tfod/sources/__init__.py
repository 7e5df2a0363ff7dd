"""What a source holds: its files, data sets, label maps, format and layout, for every command.

It may import ``detection`` and what is below it.
"""
