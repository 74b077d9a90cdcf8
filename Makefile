# Two commands matter: `make demo` and `make test`. Both set everything up by themselves, in .venv, without root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 50

.PHONY: help build test lint demo sim fuzz bench docs clean
help:
	@echo "make demo    publish, lose, repair, record and analyse 336,776 real flights (out/demo/report.html)"
	@echo "make test    set everything up and pass the tests"
	@echo "make build   set up .venv and compile"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make sim SEEDS=200   the simulator over that many seeds"
	@echo "make fuzz    every fuzz target for a few seconds"
	@echo "make bench   ratios against peers, in one run"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove everything that was built"

build:
	@$(PYTHON) tools/setup.py $(VENV)

test: build
	$(BIN)/python -m pytest

lint: build
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: build
	$(BIN)/mainstem demo

sim: build
	$(BIN)/python -m mainstem.sim --seeds $(SEEDS)

fuzz: build
	$(BIN)/python fuzz/run.py

bench: build
	$(BIN)/python benchmarks/run.py

docs: build
	$(BIN)/python -m mkdocs build --quiet

clean:
	rm -rf $(VENV) build dist out site src/*.egg-info src/mainstem/_core/*/*.so
