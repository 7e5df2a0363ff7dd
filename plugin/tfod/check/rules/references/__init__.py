"""Rules about shards beside something else: annotations, a CVAT task, predictions, a trainer."""

from tfod.check.rules.references import fidelity as fidelity
from tfod.check.rules.references import pipeline as pipeline
from tfod.check.rules.references import predictions as predictions
from tfod.check.rules.references import task as task
