"""The checker of TFRecord shards and annotation zips, and the command ``tfod``."""
