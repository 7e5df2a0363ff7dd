"""The bridge to CVAT servers that one may not touch, with cvat-sdk."""
