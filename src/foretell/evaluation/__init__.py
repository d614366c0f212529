"""Quality: lm-eval tasks through the engine, bits per byte of texts, the share of outputs that parse."""
