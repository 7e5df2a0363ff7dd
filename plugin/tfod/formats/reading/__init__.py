"""Parts that readers of annotations share: documents, archives, image files and objects."""
