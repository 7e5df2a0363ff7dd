"""The HTML report: a page with charts, and the images with their boxes."""
