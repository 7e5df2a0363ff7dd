"""The Python of CVAT's images by release, and their packages that tfod needs."""

# The old google-crc32c finds its C library with setuptools, which these images have.
_OLD_CRC32C = ("google-crc32c==1.5.0", "setuptools==69.5.1")
PINNED = {
    "2.11": ("3.10", "numpy==1.22.4", "protobuf==3.19.6", *_OLD_CRC32C),
    "2.15": ("3.10", "numpy==1.22.4", "protobuf==4.25.3", *_OLD_CRC32C),
    "2.73": ("3.12", "numpy==2.2.6", "protobuf==6.33.5", "google-crc32c==1.7.1"),
}
