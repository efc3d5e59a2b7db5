"""MegEngine's C++ tool load_and_run, done again: its flags, its names, its files."""
