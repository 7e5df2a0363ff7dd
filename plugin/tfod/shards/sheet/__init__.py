"""Contact sheets: shards go in, their images with boxes and classes come out as a page of HTML.

May import ``check`` (whose reporters draw the boxes) and what is below it.
"""

from tfod.shards.sheet.choice import Choice, chosen_tiles
from tfod.shards.sheet.page import render_page
from tfod.shards.sheet.tile import Tile

__all__ = ["Choice", "Tile", "chosen_tiles", "render_page"]
