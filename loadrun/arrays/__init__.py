"""numpy's functions on traced arrays, by the chapters of numpy's manual."""
