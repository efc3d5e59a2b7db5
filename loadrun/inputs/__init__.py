"""Data for models: specification lists, loading, file formats, generated numbers, the transform expression."""
