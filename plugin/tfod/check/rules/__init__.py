"""The rules, a module for each family: a batch of records or a data set in, findings out.

Importing this package declares all rules. It may import ``finding`` and ``records`` of ``check``,
and the rooms below ``check``. The test cases are in ``tests/mutants``, a module for each family.
"""

from tfod.check.rules import boxes as boxes
from tfod.check.rules import example as example
from tfod.check.rules import images as images
from tfod.check.rules import labels as labels
from tfod.check.rules import masks as masks
from tfod.check.rules import names as names
from tfod.check.rules import pipeline as pipeline
from tfod.check.rules import shards as shards
from tfod.check.rules import task as task
from tfod.check.rules import zip as zip
