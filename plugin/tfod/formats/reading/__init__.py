"""What readers of annotations share: documents, images by the names in them, and objects."""
