"""Trunk and heads."""
