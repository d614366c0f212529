"""Measuring: speed against depth 0 in the same run, and proofs that the output is unchanged."""
