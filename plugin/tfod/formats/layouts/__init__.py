"""Writers of shards in other layouts, for ``convert`` and for Datumaro's exporters."""
