"""The rules, one module a family; importing this package declares them all.

Their test cases, which fire and which nearly do, are in ``tests/mutants``, a module a family.
"""

from tfod.check.rules import archive as archive
from tfod.check.rules import boxes as boxes
from tfod.check.rules import example as example
from tfod.check.rules import hints as hints
from tfod.check.rules import images as images
from tfod.check.rules import labels as labels
from tfod.check.rules import names as names
from tfod.check.rules import references as references
from tfod.check.rules import shards as shards
