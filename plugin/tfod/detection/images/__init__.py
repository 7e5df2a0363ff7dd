"""Images and masks as records hold them: encoded bytes in, formats, sizes and pixels out.

It may import ``boxes`` and ``detection`` beside it, and what is below its room.
"""
