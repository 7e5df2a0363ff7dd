"""DAT: what the data are like, of subsets, boxes and images: infos and warnings alone."""

from tfod.check.rules.hints import boxes as boxes
from tfod.check.rules.hints import images as images
from tfod.check.rules.hints import subsets as subsets
