# The virtual environment is made once, and again when what it installs changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
KERNELS := CMakeLists.txt $(wildcard $(addprefix src/posenc/kernels/*.,cpp h hpp))

.PHONY: run test lint bench asan clean

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

# The tests of the CPU kernel, with a library that notices what it may not touch (Linux). The sanitizers' own libraries
# have to be there before Python is, and libstdc++ with them.
ASAN_TESTS ?= tests/test_kernels.py $(filter-out tests/test_cpu_memory.py,$(wildcard tests/test_cpu*.py))
ASAN_LIBRARY := $(CURDIR)/build/asan/libposenc.so
asan: $(VENV)/.test
	$(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DPOSENC_SANITIZE=ON -S . -B build/asan
	$(BIN)/cmake --build build/asan
	LD_PRELOAD="$$(ldd $(ASAN_LIBRARY) | awk '/lib(asan|clang_rt|stdc)/ { printf "%s ", $$3 }')" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 POSENC_CPU_LIBRARY=$(ASAN_LIBRARY) \
	$(BIN)/python -m pytest --capture=sys $(ASAN_TESTS)

$(VENV)/.pip: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet "pip>=25.1"
	$(PIP) install --quiet --constraint constraints.txt --group build
	touch $@

$(VENV)/.run: $(VENV)/.pip pyproject.toml $(KERNELS)
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable ".[data]"
	$(BIN)/python -c "from posenc import kernels; kernels.BUILT or print(kernels.MISSING)"
	touch $@

$(VENV)/.lint: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt --group lint
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) install --quiet --constraint constraints.txt "posenc[cluster]" --group test --group peers
	touch $@

clean:
	rm -rf $(VENV) runs report.html dist build src/posenc/kernels/lib .mypy_cache .ruff_cache .pytest_cache .hypothesis
