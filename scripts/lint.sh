#!/usr/bin/env bash
# clang-tidy over the sources that changed since BASE (default: the last commit), or over all with --all.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-tidy >/dev/null || { echo "clang-tidy is missing: sudo apt-get install -y clang-tidy"; exit 1; }
if [ "${1:-}" = --all ]; then files=$(git ls-files 'aliquot/*.cpp'); else
  files=$(git diff --name-only --diff-filter=d "${1:-HEAD~1}" -- 'aliquot/*.cpp')
fi
[ -z "$files" ] || xargs -P 2 -n 1 clang-tidy -quiet -p build/release <<<"$files"
