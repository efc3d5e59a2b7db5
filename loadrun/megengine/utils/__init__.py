"""Tools for modules, as MegEngine's ``utils`` package has them."""
