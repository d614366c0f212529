"""vLLM for run.py, in its own environment: DTYPE DEPTH, the demo trunk exported in MiMo's layout (make interop)."""

import json
import os
import sys
import time
from pathlib import Path

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
FOLDER = Path(__file__).parent.parent.parent / ".interop" / "models" / "smollm2-mimo-folded"

if __name__ == "__main__":
    import vllm

    dtype, depth = sys.argv[1], int(sys.argv[2])
    llm = vllm.LLM(
        model=str(FOLDER),
        dtype=dtype,
        speculative_config={"method": "mtp", "num_speculative_tokens": depth} if depth else None,
        generation_config="vllm",
        max_model_len=1024,
        max_num_seqs=1,
        enable_prefix_caching=False,
        use_tqdm_on_load=False,
    )
    eos = json.loads((FOLDER / "generation_config.json").read_text())["eos_token_id"]
    stops = eos if isinstance(eos, list) else [eos]
    print(json.dumps({"version": f"vLLM {vllm.__version__}"}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        params = vllm.SamplingParams(temperature=0.0, max_tokens=request["max_tokens"], stop_token_ids=stops)
        start = time.perf_counter()
        [done] = llm.generate([{"prompt_token_ids": request["token_ids"]}], params, use_tqdm=False)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "token_ids": list(done.outputs[0].token_ids)}), flush=True)
