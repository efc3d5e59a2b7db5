#!/usr/bin/env bash
# Set up real MegEngine in a folder of its own and run the tests that need it.
#   scripts/oracle.sh [FOLDER [PYTEST OPTION ...]]     default .venv-oracle; needs Python 3.10 on x86-64 Linux and the .venv of the README
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-.venv-oracle}
if [ ! -x "$folder/bin/python" ]; then
    python=$(command -v python3.10 || true)
    if [ -z "$python" ] && command -v pyenv >/dev/null; then
        python=$(ls "$(pyenv root)"/versions/3.10.*/bin/python3.10 2>/dev/null | tail -n 1)
    fi
    [ -n "$python" ] || { echo "oracle.sh: Python 3.10 was not found; MegEngine 1.13.0 has no wheel for newer ones" >&2; exit 2; }
    "$python" -m venv "$folder"
fi
"$folder/bin/python" -c 'import megengine' 2>/dev/null ||
    "$folder/bin/python" -m pip install --quiet 'MegEngine==1.13.0' 'numpy<1.24' 'protobuf<4' 'setuptools<66'
LOADRUN_ORACLE=$(cd "$folder" && pwd)/bin/python exec .venv/bin/python -m pytest -m oracle "${@:2}"
