"""Shards of other layouts than the OD API's, as `convert` and Datumaro's exporters write them."""
