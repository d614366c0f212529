"""Checkpoints: adapters (heads alone), trunks from folders or GGUF files, and what a checkpoint holds."""
