#!/usr/bin/env bash
# loadrun installs beside other packages and changes none of them (docs/install.md).
#
#     scripts/install_check.sh [PYTHON [PACKAGE...]]
#
# The packages are those beside which it is installed, such as `torch`, or `megengine 'numpy<1.24'`; by default numpy 1.23 and
# opencv-python, as MegEngine brings them, for which Python 3.10 and 3.11 have wheels, then numpy alone.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
shift || true
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r loadrun pyproject.toml README.md LICENSE "$folder/" # a build leaves files behind where it runs

beside() {
  local bin=$folder/venv/bin changed extra
  "$python" -m venv --clear "$folder/venv"
  "$bin/pip" install --quiet "$@"
  "$bin/pip" freeze > "$folder/before"
  extra=[images]
  ! grep -qi '^opencv' "$folder/before" || extra= # pictures are read by the cv2 that is there
  "$bin/pip" install --quiet "$folder$extra"
  "$bin/pip" freeze > "$folder/after"
  changed=$(grep -vxFf "$folder/after" "$folder/before" || true)
  [ -z "$changed" ] || { echo "changed or removed by the install: $changed" >&2; exit 1; }
  for package in megengine torch; do
    ! grep -qi "^$package==" "$folder/after" || "$bin/python" -c "import $package; print('$package', $package.__version__)"
  done
  printf 'P6\n8 8\n255\n%192s' '' > "$folder/x.ppm"
  "$bin/loadrun" fixtures/nets/mlp.mge -q
  "$bin/loadrun" info fixtures/nets/mlp.mge --quiet > /dev/null
  "$bin/loadrun" fixtures/nets/resnet_basic.mge --input "$folder/x.ppm" --resize-input --allow-uncompared -q
  echo "installed beside $*: nothing was changed; the environment takes $(du -sm "$folder/venv/lib" | cut -f1) MB"
}

if [ $# -gt 0 ]; then
  beside "$@"
else
  beside 'numpy==1.23.*' 'opencv-python<4.9'
  beside 'numpy<2.3'
fi
