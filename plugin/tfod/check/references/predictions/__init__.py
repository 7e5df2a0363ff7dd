"""What a detector found on the images: a file of COCO results goes in, likely label errors come
out.

It may import ``convert`` and what is below it, and the findings and rules of the check.
"""
