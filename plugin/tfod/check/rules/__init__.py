"""The rules, a module for each family: parts of a record or a dataset in, problems out.

Importing this package declares all rules. It may import ``findings``, ``records`` and
``references`` of ``check``, and the rooms below ``check``. The test cases are in ``tests/mutants``,
a module for each family.
"""

from tfod.check.rules import archive as archive
from tfod.check.rules import boxes as boxes
from tfod.check.rules import example as example
from tfod.check.rules import images as images
from tfod.check.rules import labels as labels
from tfod.check.rules import masks as masks
from tfod.check.rules import names as names
from tfod.check.rules import references as references
from tfod.check.rules import shards as shards
