#!/bin/sh
# Fetches what worker_llamacpp.mjs runs on: llama.cpp as node-llama-cpp carries it, built for every CPU.
# Usage: llamacpp_env.sh [FOLDER]        (default .interop/llama; needs node 20 and npm)
set -eu

folder=${1:-.interop/llama}
mkdir -p "$folder"
cd "$folder"
npm install --silent --ignore-scripts node-llama-cpp@3.22.1
