# Two commands on a fresh machine: `make demo`, `make test`. Everything else is for those who change the project.
.PHONY: demo test setup bench format lint check-all clean

demo:
	scripts/setup.sh aliquot aliquot-rank
	scripts/demo.sh

test: setup
	ctest --test-dir build/release --output-on-failure -j 2

setup:
	scripts/setup.sh

bench: setup
	scripts/bench.sh

# clang-format writes; `make lint` only looks, at what changed since the last commit but one (BASE=...) or at all (BASE=--all).
format:
	scripts/format.sh

lint:
	scripts/format.sh --check
	scripts/lint.sh $(BASE)

# Slow: the whole test suite under the address and undefined-behaviour sanitizers, the torch-free part under the thread one.
check-all: setup
	scripts/check_all.sh

clean:
	rm -rf build
