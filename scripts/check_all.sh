#!/usr/bin/env bash
# The test suite once more under sanitizers: address and undefined behaviour for all, threads for the torch-free part. Slow.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset asan && cmake --build --preset asan
# LibTorch keeps its registries for the life of the process.
ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build/asan --output-on-failure
cmake --preset tsan && cmake --build --preset tsan
ctest --test-dir build/tsan --output-on-failure -L torch-free
