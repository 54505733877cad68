#!/usr/bin/env bash
# Debian packages, .venv with torch, configured and built in build/release. Run again, it takes seconds.
#
#   scripts/setup.sh               everything, with what the tests need
#   scripts/setup.sh TARGET...     these programs alone
#
# With a LibTorch of your own: ALIQUOT_TORCH=/path/to/libtorch scripts/setup.sh (CMake's -DCMAKE_PREFIX_PATH).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
mkdir -p build

required=(cmake ninja-build g++ libcli11-dev nlohmann-json3-dev libhwy-dev libgtest-dev librapidcheck-dev libbenchmark-dev)
optional=(ccache mold libgloo-dev liburing-dev) # a compile cache, a fast linker, ranks on several hosts, io_uring
python3 -c 'import ensurepip, venv' 2>/dev/null || required+=(python3 python3-venv)

install_missing() {
  if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system: these packages' equivalents are needed: ${required[*]}; wanted: ${optional[*]}"
    return
  fi
  local needed missing
  mapfile -t needed < <(missing_packages "${required[@]}")
  mapfile -t missing < <(missing_packages "${required[@]}" "${optional[@]}")
  if ((${#missing[@]})) && ! install_packages "${missing[@]}" && ((${#needed[@]})); then exit 1; fi
}

# pip NAME...: installs into .venv.
pip() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }

# once FILE... -- COMMAND...: runs COMMAND unless it has succeeded for the same contents of FILEs in this .venv.
once() {
  local files=()
  while [ "$1" != -- ]; do files+=("$1"); shift; done
  shift
  local stamp
  stamp=.venv/.done-$1-$(cat "${files[@]}" | sha256sum | cut -c1-16)
  [ -e "$stamp" ] && return
  "$@"
  rm -f ".venv/.done-$1-"*
  touch "$stamp"
}

# The headers and the library must be of one version, so it is pinned. +cpu is the build without CUDA, where pip's index has one.
install_torch() {
  local pinned
  pinned=$(grep '^torch==' requirements.txt)
  echo "installing $pinned"
  if ! pip "$pinned+cpu" 2>/dev/null; then
    echo "no build named $pinned+cpu here; taking $pinned, which on x86 may bring CUDA along (gigabytes)."
    pip -r requirements.txt
  fi
}

install_test_packages() {
  echo "installing what the tests compare with"
  pip -r requirements-test.txt
}

make_venv() {
  if ! .venv/bin/python -c '' 2>/dev/null; then
    rm -rf .venv
    python3 -m venv .venv
  fi
  [ -n "${ALIQUOT_TORCH:-}" ] || once requirements.txt -- install_torch
  if [ "$1" = with-tests ] && [ -e requirements-test.txt ]; then once requirements-test.txt requirements.txt -- install_test_packages; fi
}

configure() {
  [ -e build/release/build.ninja ] && [ -z "${ALIQUOT_TORCH:-}" ] && return
  cmake --preset release ${ALIQUOT_TORCH:+-DCMAKE_PREFIX_PATH="$ALIQUOT_TORCH"} >build/configure.log 2>&1 || {
    cat build/configure.log
    exit 1
  }
}

install_missing
if (($#)); then make_venv without-tests; else make_venv with-tests; fi
configure
cmake --build --preset release ${*:+--target "$@"}
