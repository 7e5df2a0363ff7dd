"""Features of a record: descriptions and field mappings, from and to feature keys."""
