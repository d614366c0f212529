"""Planning: what drafting would cost and gain on a model and a machine, before anything is run."""
