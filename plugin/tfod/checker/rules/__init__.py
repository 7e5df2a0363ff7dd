"""The rules, a module for each family: a batch of records or a data set in, findings out.

Importing this package declares all rules. It may import ``finding`` and ``records`` of ``checker``,
and the rooms below ``checker``. The test cases are in ``tests/mutants``, a module for each family.
"""

from tfod.checker.rules import boxes as boxes
from tfod.checker.rules import features as features
from tfod.checker.rules import images as images
from tfod.checker.rules import labels as labels
from tfod.checker.rules import masks as masks
from tfod.checker.rules import names as names
from tfod.checker.rules import pipeline as pipeline
from tfod.checker.rules import shards as shards
from tfod.checker.rules import task as task
from tfod.checker.rules import zip as zip
