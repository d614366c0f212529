"""Serving: an OpenAI-compatible server over one engine."""
