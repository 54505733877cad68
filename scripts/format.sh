#!/usr/bin/env bash
# clang-format over our sources; with --check, only says what it would change.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
command -v clang-format >/dev/null || install_packages clang-format
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
git ls-files -z '*.h' '*.cpp' | xargs -0 -P 2 -n 32 clang-format "${mode[@]}"
