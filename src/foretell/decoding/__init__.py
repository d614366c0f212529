"""From request to tokens: draft, one trunk pass, verify, commit."""
