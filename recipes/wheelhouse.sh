#!/usr/bin/env bash
# Packs what a machine without a network needs beside torch: an archive of wheels, which install.sh
# installs there. recipes/wheelhouse/README.md tells how.
#
#   recipes/wheelhouse.sh VERSION FOLDER
#
#   VERSION  of Python on that machine, 3.11 or 3.12
#   FOLDER   to make; 60 MB
#
#   BIN      programs (default: .venv/bin)
#
# fairseq-fixed has a wheel for Python 3.12; for 3.11 the Python in BIN compiles it, and must be 3.11.
# Wheels are for Linux on x86-64. Paths are the repository's unless they begin with a slash.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in -h|--help) sed -n '1d; /^#/!q; s/^# \{0,1\}//p' recipes/wheelhouse.sh; exit ;; esac
if [ $# -ne 2 ]; then
  echo "usage: recipes/wheelhouse.sh VERSION FOLDER, but the number of arguments is $#" >&2
  exit 2
fi
version=$1 out=$2 BIN=${BIN:-.venv/bin} limit=60000000  # bytes
here=recipes/wheelhouse

fail() { echo "error: $*" >&2; exit 2; }

[[ $version =~ ^3\.1[12]$ ]] || fail "VERSION must be 3.11 or 3.12, but is $version"
if [ -e "$out" ] && ! { [ -d "$out" ] && [ -z "$(ls -A "$out")" ]; }; then
  fail "$out must be a new or empty folder, but has files; name another"
fi
[ -x "$BIN/python" ] || fail "no python in $BIN; run make env, or set BIN"
running=$("$BIN/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$version" = 3.11 ] && [ "$running" != 3.11 ]; then
  fail "for 3.11 fairseq-fixed is compiled by the Python in BIN, which must be 3.11, but is $running"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed '/^torch==/d' constraints.txt > "$work/constraints.txt"
pip() { "$BIN/python" -m pip --disable-pip-version-check -q "$@"; }
wheel() { pip wheel --no-deps --no-build-isolation -w "$work/wheels" "$@"; }
target=(--python-version "$version" --implementation cp --platform manylinux_2_28_x86_64
  --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64)
download() {
  pip download --only-binary :all: "${target[@]}" -c "$work/constraints.txt" \
    --find-links "$work/wheels" -d "$work/wheels" "$@"
}

echo "1/4  what has no wheel: antlr4-python3-runtime, for hydra"
wheel --retries 0 antlr4-python3-runtime==4.9.3 ||
  fail "antlr4-python3-runtime cannot be downloaded, see above; this needs a network"
echo "2/4  wheels for Python $version"
download -r "$here/requirements.txt"
if [ "$version" = 3.12 ]; then
  download --no-deps fairseq-fixed
else
  echo "     fairseq-fixed, which compiles for four to five minutes the first time"
  wheel -c "$work/constraints.txt" fairseq-fixed
fi
echo "3/4  fairseq-memattn"
mkdir "$work/source"
cp -r fairseq_memattn hydra_plugins pyproject.toml setup.py README.md LICENSE \
  "$work/source"
wheel "$work/source"
echo "4/4  one archive, which takes three minutes to compress"
cp "$here/requirements.txt" "$work/wheels"
mkdir "$work/out"
"$BIN/python" "$here/pack.py" "$work/wheels" "$work/out/wheels-$version.tar.xz"
cp "$here"/{install.sh,README.md} "$work/out"

size=$(du -sb --apparent-size "$work/out" | cut -f1)
((size <= limit)) || fail "the files must have at most $limit bytes, but have $size"
mkdir -p "$out"
cp "$work"/out/* "$out"
echo "$out has $((size / 1000000)) MB; copy it to the other machine, and run install.sh there"
