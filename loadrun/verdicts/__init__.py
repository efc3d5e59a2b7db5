"""What a replay says and why: results, policies, the judge, and checks that could not fail."""
