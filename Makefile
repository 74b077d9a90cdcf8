# Two commands matter: `make demo` and `make test`. Both set everything up by themselves, in .venv, without root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 50

.PHONY: help build test unit lint format generate hooks levels demo sim fuzz bench instructions docs clean
help:
	@echo "to see it work"
	@echo "  make demo            publish, lose, repair, record and analyse 336,776 real flights (out/demo/report.html)"
	@echo "  make test            set everything up and pass the tests"
	@echo "while you work"
	@echo "  make build           set up .venv and compile what changed"
	@echo "  make unit            the tests that need only memory, and those of the code's form"
	@echo "  make lint            ruff, mypy, import-linter, commit messages"
	@echo "  make format          let ruff format and sort imports"
	@echo "  make generate        write what is generated: stubs, layout.pxd, tables, reference pages"
	@echo "  make hooks           check commit messages as they are written"
	@echo "  make levels          modules, imports, levels and cycles of each package"
	@echo "before you trust it"
	@echo "  make sim SEEDS=200   the simulator over that many seeds"
	@echo "  make fuzz            every fuzz target for a few seconds"
	@echo "  make bench           ratios against peers, in one run"
	@echo "  make instructions    instructions of the compiled paths for one message, which a busy machine does not change"
	@echo "  make docs            build the documentation into site/"
	@echo "  make clean           remove everything that was built"

build:
	@$(PYTHON) tools/setup.py $(VENV)

test: build
	@echo "== every test: unit, form, simulation, system, interop, fuzz, spark"
	$(BIN)/python -m pytest

unit: build
	$(BIN)/python -m pytest tests/unit tests/form

lint: build
	@echo "== style: ruff"
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@echo "== types: mypy"
	$(BIN)/mypy
	@echo "== imports point downwards: import-linter"
	$(BIN)/lint-imports
	@echo "== commit messages"
	$(BIN)/python tools/check_commit_messages.py

format: build
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: build
	$(BIN)/python tools/write_core_stubs.py
	$(BIN)/python tools/write_table_docs.py
	$(BIN)/python tools/write_reference.py

hooks:
	git config core.hooksPath tools/hooks

levels: build
	$(BIN)/python tools/import_levels.py

demo: build
	$(BIN)/mainstem demo

sim: build
	$(BIN)/python -m mainstem.sim --seeds $(SEEDS)

fuzz: build
	$(BIN)/python fuzz/run.py

bench: build
	$(BIN)/python benchmarks/run.py

instructions: build
	$(BIN)/python tools/instruction_counts.py

docs: build
	$(BIN)/python -m mkdocs build --quiet

clean:
	rm -rf $(VENV) build dist out site src/*.egg-info src/mainstem/_core/*/*.so
