"""The family DAT: what is odd in the data. Figures of subsets and images in, hints out.

It may import what :mod:`tfod.check.rules` may.
"""

from tfod.check.rules.hints import boxes as boxes
from tfod.check.rules.hints import images as images
from tfod.check.rules.hints import subsets as subsets
