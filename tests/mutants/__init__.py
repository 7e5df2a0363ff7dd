"""Files that each break one rule, and near misses, with the rule in their names."""
