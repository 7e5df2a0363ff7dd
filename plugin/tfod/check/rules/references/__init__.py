"""Rules that compare shards with annotations, a CVAT task, predictions, a trainer's settings.

Problems come out; what :mod:`tfod.check.references` has read goes in. It may import what
:mod:`tfod.check.rules` may.
"""

from tfod.check.rules.references import fidelity as fidelity
from tfod.check.rules.references import pipeline as pipeline
from tfod.check.rules.references import predictions as predictions
from tfod.check.rules.references import task as task
