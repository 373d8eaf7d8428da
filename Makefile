# demo, test, check, bench, chaos: each sets up what it needs and is quick when nothing has changed.
# What must be on the machine: Python 3.11 or later, Java 17 or later, Maven. `intertidal doctor` names what is missing.

PYTHON ?= python3
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
QUICK := not chaos and not bench and not gpu

UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check bench chaos env jars lock format

help:
	@echo "make demo    the whole pipeline on a local Kafka (DEMO_ARGS='--seconds 90')"
	@echo "make test    unit, contract and broker tests"
	@echo "make check   format, lint, types, imports"
	@echo "make bench   measurements"
	@echo "make chaos   long proofs under failures"

demo: env jars
	$(BIN)/intertidal demo $(DEMO_ARGS)

# Exit code 5: TEST_ARGS leaves one of the two halves without a test.
test: env jars
	$(BIN)/python -m pytest -q -n 2 -m "$(QUICK) and not broker" $(TEST_ARGS) || [ $$? -eq 5 ]
	$(BIN)/python -m pytest -q -m "$(QUICK) and broker" $(TEST_ARGS) || [ $$? -eq 5 ]

check: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/lint-imports
	$(BIN)/python -m schemas.compatibility

bench: env jars
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

chaos: env jars
	$(BIN)/python -m pytest -v -m chaos tests $(TEST_ARGS)

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

env: $(INSTALLED)

# The stamp is touched last, so an installation that broke off is done again.
$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/uv --version 2>/dev/null | grep -q "uv $(UV_VERSION)" || $(BIN)/python -m pip install -q uv==$(UV_VERSION)
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# Without Java or Maven this says so in one line and the tests that need a broker are skipped.
jars: env
	-@$(BIN)/intertidal broker fetch
	-@$(BIN)/python -m ops.broker.maven docs/examples/java/pom.xml >/dev/null

lock: env
	$(BIN)/uv pip compile -q --python-version 3.11 --all-extras --no-emit-index-url --generate-hashes pyproject.toml -o requirements.lock
