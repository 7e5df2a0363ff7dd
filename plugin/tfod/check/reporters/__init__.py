"""A report goes in; text, JSON, JUnit XML, an HTML page, and images with their boxes come out.

May import the rest of ``check``, but for the check itself, and the rooms below ``check``.
"""

from tfod.check.reporters.drawing import draw_image
from tfod.check.reporters.html import AFTER_HEAD, render_body, render_html, report_css
from tfod.check.reporters.json_and_junit import render_json, render_junit
from tfod.check.reporters.text import render_text

__all__ = [
    "AFTER_HEAD",
    "draw_image",
    "render_body",
    "render_html",
    "render_json",
    "render_junit",
    "render_text",
    "report_css",
]
