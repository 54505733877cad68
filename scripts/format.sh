#!/usr/bin/env bash
# clang-format over our sources; with --check, only says what it would change.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null; then
  if [ "$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends clang-format >/dev/null; else
    echo "clang-format is missing: sudo apt-get install -y clang-format"
    exit 1
  fi
fi
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run -Werror)
git ls-files '*.h' '*.cpp' | xargs clang-format "${mode[@]}"
