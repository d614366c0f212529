#!/bin/sh
# Builds what llamacpp_run.py needs in FOLDER (default: .interop/llamacpp), on the CPU: llama.cpp's library and
# converter, as vendored in the source package of llama-cpp-python, and llamacpp_mtp. What is there already is kept.
#
#     sh interop/llamacpp_env.sh [FOLDER]
#
# Needs cmake and a C++17 compiler. PYTHON and JOBS choose the interpreter that fetches the package and the processes.
set -eu

VERSION=0.3.36
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-.interop/llamacpp}"
folder=$(cd "${1:-.interop/llamacpp}" && pwd)
source=$folder/llama_cpp_python-$VERSION/vendor/llama.cpp
build=$folder/build

if [ ! -f "$folder/.unpacked-$VERSION" ]; then
    "${PYTHON:-python3}" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$folder" \
        "llama-cpp-python==$VERSION"
    tar -xzf "$folder/llama_cpp_python-$VERSION.tar.gz" -C "$folder"
    touch "$folder/.unpacked-$VERSION"
fi

cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" \
    -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
    -DGGML_CCACHE=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF > "$folder/cmake.log"
cmake --build "$build" --target llama --parallel "${JOBS:-2}" > "$folder/make.log"

"${CXX:-c++}" -std=c++17 -O1 -I"$source/include" -I"$source/ggml/include" -I"$source/src" \
    -o "$folder/llamacpp_mtp" "$here/llamacpp_mtp.cpp" -L"$build/bin" -lllama -lggml -lggml-base \
    -Wl,-rpath,"$build/bin"
echo "llama.cpp ready in $folder"
