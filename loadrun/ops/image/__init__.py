"""Image operators: sampling, warping, resizing, colours, regions of interest."""
