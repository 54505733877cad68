#!/usr/bin/env bash
# Sets up everything: Debian packages, .venv with torch, configured and built. Run again, it takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(cmake ninja-build g++ ccache mold libcli11-dev nlohmann-json3-dev libhwy-dev libgtest-dev librapidcheck-dev
          libbenchmark-dev libgloo-dev python3-venv)

missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  if [ "$(id -u)" = 0 ]; then sudo=(); elif sudo -n true 2>/dev/null; then sudo=(sudo -n); else
    echo "These Debian packages are missing; install them and run again:"
    echo "  sudo apt-get install -y ${missing[*]}"
    exit 1
  fi
  echo "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# torch is pinned: its headers and its library must be of one version, and a bare `torch` may be a CUDA build of gigabytes.
# With a LibTorch of your own: ALIQUOT_TORCH=/path/to/libtorch make setup
if [ -z "${ALIQUOT_TORCH:-}" ]; then
  stamp=.venv/.setup-$(cat requirements.txt requirements-test.txt | sha256sum | cut -c1-16)
  if [ ! -e "$stamp" ]; then
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
    rm -f .venv/.setup-*
    touch "$stamp"
  fi
fi

if [ ! -e build/release/build.ninja ] || [ -n "${ALIQUOT_TORCH:-}" ]; then
  cmake --preset release ${ALIQUOT_TORCH:+-DCMAKE_PREFIX_PATH="$ALIQUOT_TORCH"} >build.log 2>&1 || { cat build.log; exit 1; }
  rm -f build.log
fi
cmake --build --preset release
