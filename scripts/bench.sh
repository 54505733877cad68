#!/usr/bin/env bash
# Ratios taken in one run; see benchmarks/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."
for b in build/release/bin/bench_*; do
  [ -x "$b" ] && "$b"
done
