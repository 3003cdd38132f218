#!/usr/bin/env bash
# Installs fairseq-memattn, fairseq and what they need beside torch, without a network.
#
#   ./install.sh [OPTION...]
#
#   OPTION  of pip install, for example --user
#
#   PYTHON  of the environment to install into, for example env/bin/python (default: python3)
#
# torch must be installed there. Packages that are installed in a version that suffices stay.
set -euo pipefail
case ${1:-} in -h|--help) sed -n '1d; /^#/!q; s/^# \{0,1\}//p' "$0"; exit ;; esac
here=$(dirname "$(realpath "$0")")
python=${PYTHON:-python3}

fail() { echo "error: $*" >&2; exit 1; }

found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) ||
  fail "PYTHON must be a Python, but $python does not run"
archives=("$here"/wheels-*.tar.xz)
[ -e "${archives[0]}" ] || fail "no wheels-VERSION.tar.xz beside $0"
wanted=${archives[0]##*/wheels-} wanted=${wanted%.tar.xz}
[ "$found" = "$wanted" ] ||
  fail "the wheels are for Python $wanted, but $python is $found; set PYTHON"
"$python" -m pip --version > /dev/null 2>&1 || fail "$python has no pip"
torch=$("$python" -W ignore -c 'import torch; print(torch.__version__)' 2>&1 | tail -n 1) ||
  fail "torch 2.6 or newer must be installed, but $python does not import it: $torch"
[ "$(printf '%s\n' 2.6 "$torch" | sort -V | head -n 1)" = 2.6 ] ||
  fail "torch must be 2.6 or newer, but $python has $torch"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Neither variables nor files of settings send pip to an index, or to other wheels.
export PIP_CONFIG_FILE=/dev/null
install() {
  "$python" -m pip --isolated --disable-pip-version-check install --no-index \
    --find-links "$work" "$@"
}

echo "unpacking to $work, which takes about 360 MB for as long as this runs"
if "$python" -c 'import lzma' 2> /dev/null; then
  "$python" -W ignore -m tarfile -e "${archives[0]}" "$work"
else
  tar -xJf "${archives[0]}" -C "$work"
fi
anew="try a new environment: $python -m venv --system-site-packages ENV; PYTHON=ENV/bin/python $0"
echo "installing beside torch $torch"
install -r "$work/requirements.txt" "$@" || fail "pip does not install the wheels, see above; $anew"
# fairseq-fixed names torchaudio and Cython too, which nothing here imports, and an earlier build of
# fairseq-memattn may have the same version.
install --no-deps --force-reinstall "$@" "$work"/fairseq_*.whl
cd "$work"  # in a copy of the repository, Python would import that
"$python" -W ignore -c 'import fairseq_memattn; fairseq_memattn.register()' 2> registered || {
  # Without the advice to install from a network.
  tail -n 1 registered | sed 's/\(; replace it\)\{0,1\}: on Python 3.11 or 3.12, run `make env`.*//' >&2
  fail "the packages are installed, but fairseq_memattn does not register, see above; $anew"
}
echo "installed; --user-dir takes this folder:"
"$python" -c 'import fairseq_memattn; print(fairseq_memattn.__path__[0])'
