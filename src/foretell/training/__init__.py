"""From batch to loss: data, targets, objective, trainer, and the text heads learn from."""
