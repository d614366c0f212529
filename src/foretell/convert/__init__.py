"""Conversions between checkpoints: strip, graft, export and import, each whole or not at all, with a report."""
