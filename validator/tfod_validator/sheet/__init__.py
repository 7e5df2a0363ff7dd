"""Contact sheets: the pictures of shards with their boxes and classes, to be looked at."""

from tfod_validator.sheet.choice import Choice, chosen_tiles
from tfod_validator.sheet.page import render_page
from tfod_validator.sheet.paint import paint_sheet
from tfod_validator.sheet.tile import Tile

__all__ = ["Choice", "Tile", "chosen_tiles", "paint_sheet", "render_page"]
