# The virtual environment is made once, and again when what it installs changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip

.PHONY: run test lint bench clean

run: $(VENV)/.run
	$(BIN)/posenc compare --out report.html

test: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses=logical

lint: $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/.run
	$(BIN)/posenc bench

$(VENV)/.pip: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet "pip>=25.1"
	touch $@

$(VENV)/.run: $(VENV)/.pip pyproject.toml
	$(PIP) install --quiet --constraint constraints.txt --editable ".[data]"
	touch $@

$(VENV)/.lint: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --group lint
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --editable ".[cluster]" --group test --group peers
	touch $@

clean:
	rm -rf $(VENV) runs report.html dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
