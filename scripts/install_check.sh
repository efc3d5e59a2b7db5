#!/usr/bin/env bash
# loadrun installs beside numpy 1.23 and opencv-python, as MegEngine brings them, and changes neither.
#
#     scripts/install_check.sh [PYTHON]     Python 3.10 or 3.11, for which numpy 1.23 has wheels
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
bin=$folder/venv/bin
"$bin/pip" install --quiet 'numpy==1.23.*' 'opencv-python<4.9'
"$bin/pip" freeze > "$folder/before"
cp -r loadrun pyproject.toml README.md LICENSE "$folder/" # a build leaves files behind where it runs
"$bin/pip" install --quiet "$folder"
"$bin/pip" freeze > "$folder/after"

changed=$(grep -vxFf "$folder/after" "$folder/before" || true)
[ -z "$changed" ] || { echo "changed or removed by the install: $changed" >&2; exit 1; }
! grep -i 'opencv-python-headless' "$folder/after" || { echo "a second OpenCV was installed" >&2; exit 1; }

"$bin/python" -c 'import cv2, numpy; cv2.imwrite("'"$folder"'/x.png", numpy.zeros((8, 8, 3), "uint8")); print(numpy.__version__, cv2.__version__)'
"$bin/loadrun" fixtures/nets/mlp.mge -q
"$bin/loadrun" info fixtures/nets/mlp.mge --no-operators > /dev/null
"$bin/loadrun" fixtures/nets/resnet_basic.mge --input "$folder/x.png" --resize-input --no-check -q
size=$(du -sm "$folder/venv/lib" | cut -f1)
echo "installed beside numpy 1.23 and opencv-python: neither was changed; the environment takes $size MB"
