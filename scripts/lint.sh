#!/usr/bin/env bash
# clang-tidy, a quarter of a minute a file.
#
#   scripts/lint.sh [BASE]         the sources that changed since BASE (the last commit but one)
#   scripts/lint.sh --all          all sources
#   LINT_AT_MOST=N                 no more than N of them, the first by name; says so
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
command -v clang-tidy >/dev/null || install_packages clang-tidy
[ -e build/release/compile_commands.json ] || { echo "nothing is configured yet; run make setup"; exit 1; }

sources=('aliquot/*.cpp' 'benchmarks/*.cpp' 'tests/*.cpp')
base=${1:-HEAD~1}
if [ "$base" = --all ]; then
  mapfile -t files < <(git ls-files "${sources[@]}")
elif git rev-parse -q --verify "$base^{commit}" >/dev/null; then
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- "${sources[@]}")
else
  echo "there is no $base to compare with (a shallow clone?); nothing linted"
  exit 0
fi
most=${LINT_AT_MOST:-${#files[@]}}
((${#files[@]} <= most)) || echo "linting $most of ${#files[@]} changed files; the others: scripts/lint.sh $base"
((${#files[@]} == 0)) || printf '%s\0' "${files[@]:0:most}" | xargs -0 -P 2 -n 1 clang-tidy -quiet -p build/release
