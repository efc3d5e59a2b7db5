#!/usr/bin/env bash
# Build the sdist and the wheel in dist/ and completions of shells in completions/, check the packages, and run what
# each installs.
#
#     scripts/release.sh [TAG]     with a tag, such as v0.2.0: also what must hold before it is published
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-}
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' loadrun/base/__init__.py)
if [ -n "$tag" ]; then
  [ "$tag" = "v$version" ] || { echo "the tag is $tag, the package's version $version" >&2; exit 1; }
  ! grep -q "^## $version (unreleased)" CHANGELOG.md || { echo "CHANGELOG.md: $version is unreleased" >&2; exit 1; }
  ! grep -rn 'OWNER/loadrun' pyproject.toml docs || { echo "write the repository's address in these places" >&2; exit 1; }
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/tools"
"$folder/tools/bin/pip" install --quiet --disable-pip-version-check build twine
rm -rf dist
mkdir "$folder/source"
git archive HEAD | tar -x -C "$folder/source" # neither what is not committed nor what builds leave behind
"$folder/tools/bin/python" -m build --outdir dist "$folder/source" > "$folder/log" || { cat "$folder/log" >&2; exit 1; }
"$folder/tools/bin/twine" check --strict dist/*

wheel=dist/loadrun-$version-py3-none-any.whl
extra=$("$folder/tools/bin/python" -m zipfile -l "$wheel" | awk 'NR > 1 { print $1 }' | grep -v "^loadrun/\|^loadrun-$version.dist-info/" || true)
[ -z "$extra" ] || { echo "the wheel also holds $extra" >&2; exit 1; }
for package in "$wheel" "dist/loadrun-$version.tar.gz"; do
  "${PYTHON:-python3}" -m venv --clear "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$package"
  (
    cp -r fixtures/nets "$folder/" && cd "$folder" # where no loadrun/ lies that would be imported in its place
    [ "$(venv/bin/loadrun --version)" = "loadrun $version" ]
    venv/bin/loadrun nets/mlp.mge -q
    venv/bin/load_and_run nets/mlp.mge --iter 1 > "$folder/log" 2>&1
    venv/bin/python -c "from importlib.resources import files; assert files('loadrun').joinpath('py.typed').is_file()"
  )
done
"$folder/tools/bin/pip" install --quiet --disable-pip-version-check "$wheel" "shtab>=1.8"
"$folder/tools/bin/python" scripts/completions.py completions
echo "loadrun $version: $(du -h "$wheel" | cut -f1) wheel, both packages install and run"
