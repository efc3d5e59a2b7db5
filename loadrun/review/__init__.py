"""Beyond one replay: any function against a file, results judged again, checks tried on broken models."""
