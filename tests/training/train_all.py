"""Trains the recipes named on the command line, one after another: what torchrun starts in test_distributed."""

from __future__ import annotations

import sys

from foretell.training.recipe_file import load_recipe
from foretell.training.trainer import train

for argument in sys.argv[1:]:
    path, _, resume = argument.partition("+")
    train(load_recipe(path), resume=bool(resume))
