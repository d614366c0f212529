"""What a checkpoint holds, what it costs, and what engines will do with it, read from headers alone; no torch."""
