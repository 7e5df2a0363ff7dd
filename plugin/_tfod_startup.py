"""Starts the import hook when ``tfod_datumaro.pth`` imports this module, until Python 3.14.

Later Pythons call :func:`_tfod_import_hook.start`, which ``tfod_datumaro.start`` names (PEP 829).
"""

from _tfod_import_hook import start

start()
