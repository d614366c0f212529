#!/bin/sh
# Serves an exported folder with vLLM on the CPU, OpenAI's API at PORT, heads and all.
# Usage: vllm_serve.sh VLLM_ENV MODEL PORT [OPTIONS OF VLLM]       (PLAIN=1: without its heads)
set -eu

python="${1:?"usage: vllm_serve.sh VLLM_ENV MODEL PORT"}/bin/python"
model=${2:?"usage: vllm_serve.sh VLLM_ENV MODEL PORT"}
port=${3:?"usage: vllm_serve.sh VLLM_ENV MODEL PORT"}
shift 3

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_OMP_THREADS_BIND=nobind
export VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-1}" VLLM_LOGGING_LEVEL="${VLLM_LOGGING_LEVEL:-WARNING}"
[ -n "${PLAIN:-}" ] || set -- --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}' "$@"
# The module and not the command `vllm`, which looks for a package of that name and finds vllm-cpu.
exec "$python" -m vllm.entrypoints.openai.api_server --model "$model" --port "$port" "$@"
