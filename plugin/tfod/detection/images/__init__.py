"""Images and masks in records: encoded bytes to formats, sizes and pixels."""
