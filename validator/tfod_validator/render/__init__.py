"""The report for people and machines: text, JSON, HTML and JUnit XML."""

from tfod_validator.render.drawn import draw_picture
from tfod_validator.render.html import AFTER_HEAD, render_body, render_html, report_css
from tfod_validator.render.json_report import render_json
from tfod_validator.render.junit import render_junit
from tfod_validator.render.text import render_text

__all__ = [
    "AFTER_HEAD",
    "draw_picture",
    "render_body",
    "render_html",
    "render_json",
    "render_junit",
    "render_text",
    "report_css",
]
