"""Kernels of our own for the CPU: compiled once a machine, at first use."""
