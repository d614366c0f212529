"""``python -m foretell``: what torchrun starts."""

from foretell.cli.main import main

raise SystemExit(main())
