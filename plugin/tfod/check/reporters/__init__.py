"""The report for people and machines: text, JSON, HTML and JUnit XML."""

from tfod.check.reporters.drawing import draw_image
from tfod.check.reporters.html import AFTER_HEAD, render_body, render_html, report_css
from tfod.check.reporters.json_report import render_json
from tfod.check.reporters.junit import render_junit
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
