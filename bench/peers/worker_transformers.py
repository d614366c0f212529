"""transformers for run.py: DTYPE [lookup], ``generate`` on the demo trunk."""

import json
import sys
import time

import torch
import transformers

from foretell.convert.folder import model_folder

dtype, *more = sys.argv[1:]
options = {"prompt_lookup_num_tokens": 3} if "lookup" in more else {}
model = transformers.AutoModelForCausalLM.from_pretrained(model_folder("demo"), dtype=getattr(torch, dtype)).eval()
print(json.dumps({"version": f"transformers {transformers.__version__}, torch {torch.__version__}"}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    ids = torch.tensor([request["token_ids"]])
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=request["max_tokens"], **options
        )
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "token_ids": out[0, ids.shape[1] :].tolist()}), flush=True)
