"""What MegEngine's C++ tool load_and_run does, done here: its flags, its names, its files."""
