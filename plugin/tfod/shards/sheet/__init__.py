"""Contact sheets: the images of shards with their boxes and classes, to be looked at."""

from tfod.shards.sheet.choice import Choice, chosen_tiles
from tfod.shards.sheet.page import render_page
from tfod.shards.sheet.paint import paint_sheet
from tfod.shards.sheet.tile import Tile

__all__ = ["Choice", "Tile", "chosen_tiles", "paint_sheet", "render_page"]
