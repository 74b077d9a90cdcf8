# Two commands matter: `make demo` and `make test`. Both set everything up by themselves, in .venv, without root.
# `make check` is slower. Together they run everything except the long tests; of those, each commit runs a different third.
PYTHON ?= python3
# Another environment for another Python: make test PYTHON=python3.13 VENV=build/python3.13
VENV := .venv
BIN := $(VENV)/bin
REPORTS := build/tests
SEEDS ?= 50
FUZZ_SECONDS ?= 3
MUTANTS ?= 3
# `make check` runs one in LONG_SHARE of the long tests; the commit chooses which.
LONG_SHARE ?= 3
ROUNDS ?= 60
MINUTES ?= 120
# More than cores, because many tests wait.
WORKERS ?= 4
CHEAP = --scenario aqueduct --scenario bymux --scenario jmux --scenario recorders
# Each worker takes whole files, the longest first; all tests of Spark are one worker's (tests/conftest.py).
SPREAD = -n $(WORKERS) --dist loadscope --no-loadscope-reorder
PYTEST = $(BIN)/python -m pytest $(SPREAD) --durations 20
# Each worker imports every test. Keep what pytest makes of them, which takes longer than to load it.
unexport PYTHONDONTWRITEBYTECODE
# What `make coverage` measures, and by which tests; `tool.coverage` in pyproject.toml says how.
PACKAGES = _core aeron aqueduct bymux duologue jmux mux
COVERED = $(addprefix tests/unit/,$(PACKAGES) capture sim) tests/simulation tests/system/aqueduct $(wildcard $(addprefix tests/system/, \
  test_addressing_modes.py test_bymux*.py test_channel_outcomes.py test_driver_*.py test_duologue*.py test_event_log.py test_fork.py \
  test_hostile_datagrams.py test_incomplete_group.py test_ipc_two_publishers.py test_jmux*.py test_mux_*.py test_namespaces.py \
  test_padding_past_limit.py test_requests_over_loss.py test_timestamps.py test_tunnel.py test_unclosed.py))
COVERED_UNCOMPILED = tests/unit/_core tests/unit/capture tests/unit/aeron/driver tests/unit/duologue/test_two_ends.py \
  --ignore=tests/unit/_core/test_udp.py
UNCOMPILED = build/coverage/uncompiled
UNCOMPILED_SECONDS ?= 900

.PHONY: help build test check unit lint format generate hooks levels demo sim mutants sanitize coverage faults soak atheris ziglang fuzz bench instructions \
  audit wheel release docs clean
help:
	@echo "to see it work"
	@echo "  make demo            publish, lose, repair, record and analyze 336,776 real flights (out/demo/report.html)"
	@echo "  make test            set everything up and pass the tests: some minutes"
	@echo "while you work"
	@echo "  make build           set up .venv and compile what changed"
	@echo "  make unit            the tests that need only memory, and those of the code's form"
	@echo "  make lint            ruff, mypy, import-linter, commit messages"
	@echo "  make format          let ruff format and sort imports"
	@echo "  make generate        write what is generated: tables, reference pages"
	@echo "  make hooks           check commit messages as they are written"
	@echo "  make levels          modules, imports, levels and cycles of each package"
	@echo "before you trust it"
	@echo "  make check           what make test leaves out: a third of the long tests, style, more seeds, fuzzing, the documentation"
	@echo "  make sim SEEDS=200   the simulator over that many seeds"
	@echo "  make mutants         plant each known bug, one at a time, and show what finds it"
	@echo "  make sanitize        unit, hostile and fuzz tests under AddressSanitizer and UBSan; shared memory under ThreadSanitizer"
	@echo "  make coverage        branch coverage of the protocol packages, compiled part included, and what no test takes"
	@echo "  make faults ROUNDS=500  programs of every kind of connection killed, stopped and restarted; what arrives is checked"
	@echo "  make soak MINUTES=120   programs that stay may not grow while others come and go"
	@echo "  make fuzz            every fuzz target for a few seconds, guided by coverage where atheris is installed"
	@echo "  make bench           ratios against peers, in one run"
	@echo "  make instructions    instructions of the compiled paths for one message, which a busy machine does not change"
	@echo "  make wheel           build, repair and test the wheel, into dist/"
	@echo "  make release         build and check what a release uploads, with each Python of this machine"
	@echo "  make audit           the bill of materials, into dist/, and known advisories against it"
	@echo "  make docs            build the documentation into site/"
	@echo "  make clean           remove everything that was built"

build:
	@$(PYTHON) tools/setup.py $(VENV)

test: build
	@echo "== every test but the long ones: unit, form, simulation, system, interop, fuzz, spark"
	$(PYTEST) -m "not long" --junitxml=$(REPORTS)/test.xml

# Each step is one that `make test` skips, or runs with other numbers. Steps that fail soonest come first.
check: lint
	@echo "== the documentation"
	$(BIN)/python -m mkdocs build --quiet --strict
	@echo "== what is installed with it: bill of materials, advisories"
	$(BIN)/python tools/audit.py
	@echo "== the wheel, in an empty environment"
	$(BIN)/python tools/wheel.py
	@$(MAKE) --no-print-directory ziglang
	@echo "== the compiled part, for macOS: objects only"
	$(BIN)/python tools/cross.py
	@echo "== the long tests: one of $(LONG_SHARE), chosen by the commit"
	MAINSTEM_LONG_SHARE=$(LONG_SHARE) $(PYTEST) -m long --junitxml=$(REPORTS)/check.xml || \
	{ echo "== long tests that failed: once more, one at a time"; \
	MAINSTEM_LONG_SHARE=$(LONG_SHARE) $(BIN)/python -m pytest -m long --last-failed --last-failed-no-failures none; }
	@echo "== property tests, ten times as many examples"
	HYPOTHESIS_PROFILE=check $(PYTEST) -m "hypothesis and not long" --junitxml=$(REPORTS)/properties.xml
	@echo "== the simulator, other seeds"
	$(BIN)/mainstem sim --first 101 --seeds $(SEEDS)
	$(BIN)/mainstem sim --first 1001 --seeds $$((20 * $(SEEDS))) $(CHEAP)
	@echo "== known bugs, $(MUTANTS) of them chosen by the commit: each must be found"
	$(BIN)/python -m tests.mutants --sample $(MUTANTS)
	@if gcc -print-file-name=libasan.so 2>/dev/null | grep -q ^/; then \
	  echo "== the compiled part under the compiler's sanitizers: its unit tests, and fuzz targets for a second each" && \
	  $(BIN)/python tools/sanitize.py address --quick --seconds 1; \
	else echo "== no gcc with AddressSanitizer here: the compiled part is not run under it"; fi
	@echo "== fuzz targets, $(FUZZ_SECONDS) s each"
	@$(MAKE) --no-print-directory atheris
	$(BIN)/python fuzz/run.py --seconds $(FUZZ_SECONDS)
	@if command -v valgrind >/dev/null; then \
	  echo "== instructions of the compiled paths" && $(BIN)/python tools/instruction_counts.py; \
	else echo "== no valgrind here: instructions are not counted"; fi

unit: build
	$(BIN)/python -m pytest tests/unit tests/form

lint: build
	@echo "== style: ruff"
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@echo "== types: mypy"
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py examples/aqueduct/*.py
	@echo "== types of the examples: pyright, strict"
	@if $(BIN)/pyright --version >/dev/null 2>&1; then $(BIN)/pyright --pythonpath $(BIN)/python; \
	else echo "pyright could not be fetched here: the examples' types are checked by mypy alone"; fi
	@echo "== imports point downward: import-linter"
	$(BIN)/lint-imports
	@echo "== spelling: codespell"
	$(BIN)/codespell
	@echo "== commit messages"
	$(BIN)/gitlint --commits "$$(git log --diff-filter=A --format=%H -- .gitlint | tail -1)..HEAD"

format: build
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: build
	$(BIN)/python tools/write_docs.py
	$(BIN)/python tools/draw_mux_states.py

hooks:
	git config core.hooksPath tools/hooks

levels: build
	$(BIN)/python tools/import_levels.py

demo: build
	$(BIN)/mainstem demo

sim: build
	$(BIN)/mainstem sim --seeds $(SEEDS)

mutants: build
	$(BIN)/python -m tests.mutants

sanitize: build
	$(BIN)/python tools/sanitize.py

# Measures the uncompiled form of _core: with its unit tests, and with more tests in a copy without compiled modules, where those
# that need sockets or shared memory are skipped. A failure in the copy is ignored, because those tests are for the compiled form.
coverage: export COVERAGE_FILE := $(CURDIR)/build/coverage/data
coverage: build
	rm -rf build/coverage
	mkdir -p $(UNCOMPILED)
	@echo "== the packages, with their compiled part"
	$(BIN)/coverage run -m pytest -q $(SPREAD) -m "not long" $(COVERED)
	@echo "== the compiled part as plain Python"
	git ls-files -z src tests docs tools pyproject.toml | xargs -0 cp --parents -t $(UNCOMPILED)
	-cd $(UNCOMPILED) && PYTHONPATH=src:. timeout $(UNCOMPILED_SECONDS) $(abspath $(BIN))/coverage run -m pytest -q $(SPREAD) \
	  -m "not long" -p tests.support.uncompiled_run $(COVERED_UNCOMPILED)
	$(BIN)/coverage combine --quiet
	@for package in $(PACKAGES); do echo "== $$package"; \
	  $(BIN)/coverage report --include="src/mainstem/$$package/*" --skip-covered --show-missing --fail-under=95 || low="$$low $$package"; \
	done; test -z "$$low" || { echo "below 95 %:$$low"; exit 1; }

faults: build
	$(BIN)/python -m tests.faults --rounds $(ROUNDS)

soak: build
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES)

# Coverage guides the fuzzer if atheris has a wheel for this Python; otherwise inputs are random.
atheris: build
	@$(BIN)/python -c "import atheris" 2>/dev/null || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --group fuzz || \
	echo "no wheel of atheris for this Python: inputs are drawn without guidance"

# A C compiler that compiles for other systems.
ziglang: build
	@$(BIN)/python -c "import ziglang" 2>/dev/null || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --group cross || \
	echo "no wheel of ziglang for this machine: nothing is compiled for others"

fuzz: atheris
	$(BIN)/python fuzz/run.py

bench: build
	$(BIN)/python benchmarks/run.py

instructions: build
	$(BIN)/python tools/instruction_counts.py

audit: build
	$(BIN)/python tools/audit.py --strict

wheel: build
	$(BIN)/python tools/wheel.py --keep dist

# Not after `build`: everything runs in environments of its own.
release:
	@$(PYTHON) tools/release.py

docs: build
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) build dist out site src/*.egg-info src/mainstem/_core/*/*.so
