"""The validator service: files are uploaded, checked in processes of their own, and reported."""
