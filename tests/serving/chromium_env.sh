#!/bin/sh
# Gets a headless Chromium for test_page_browser.py into a given folder, as FOLDER/chromium. A second run finds it finished.
# Usage: chromium_env.sh FOLDER        (needs Node.js 20 or newer with npm; Linux on x86-64)
set -eu

folder=${1:?"usage: chromium_env.sh FOLDER"}
version=147.0.0
done="$folder/chromium-$version.done"

[ -e "$done" ] && exit 0
command -v npm >/dev/null || { echo "chromium_env.sh: there is no npm; install Node.js, or set FORETELL_CHROMIUM to a Chromium" >&2; exit 1; }
mkdir -p "$folder"
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . "@sparticuz/chromium@$version" >/dev/null
# It unpacks itself into the folder for temporary files.
TMPDIR=$PWD node --input-type=module --eval 'import c from "@sparticuz/chromium"; await c.executablePath()'
./chromium --version
touch "$(basename "$done")"
