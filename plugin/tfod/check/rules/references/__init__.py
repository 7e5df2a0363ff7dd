"""Rules that compare shards with a CVAT task, or with a trainer's configuration.

Problems come out; what :mod:`tfod.check.references` has read goes in. It may import what
:mod:`tfod.check.rules` may.
"""

from tfod.check.rules.references import pipeline as pipeline
from tfod.check.rules.references import task as task
