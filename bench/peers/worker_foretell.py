"""Foretell for run.py: DTYPE DEPTH, the demo trunk with its shipped heads."""

import json
import sys
import time
from pathlib import Path

import foretell

ADAPTER = Path(__file__).parent.parent.parent / "adapters" / "smollm2-135m-instruct"
dtype, asked = sys.argv[1:]
depth = int(asked) if asked.isdigit() else asked
engine = foretell.Engine(foretell.load("demo", heads=ADAPTER, dtype=dtype), reuse_prefixes=False)
print(json.dumps({"version": foretell.__version__}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    params = foretell.SamplingParams(max_tokens=request["max_tokens"])
    start = time.perf_counter()
    [done] = engine.generate([request["token_ids"]], params, depth=depth)
    print(json.dumps({"seconds": time.perf_counter() - start, "token_ids": list(done.token_ids)}), flush=True)
