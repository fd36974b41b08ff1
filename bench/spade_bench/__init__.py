"""Benchmarks: each prints rows of name, value, unit, target, met, with the bare library measured in the same run."""
