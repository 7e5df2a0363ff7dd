"""Classes of a dataset: label maps and ``labels.txt`` to ids and names, in order."""
