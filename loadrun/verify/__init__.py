"""Everything around a verdict: packing, comparing, auditing, benchmarking and describing models."""
