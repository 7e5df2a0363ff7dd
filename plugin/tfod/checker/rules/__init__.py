"""The rules, one module per family; importing this package declares all of them.

It may import ``finding`` and ``analysis`` of ``checker``, and the packages below ``checker``.
``tests/mutants`` has the test cases.
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
