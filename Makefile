# gpusteward: `make demo` shows it, `make test` tests it. Both set up everything they need by themselves.
.DEFAULT_GOAL := help
.PHONY: help sbom web types wheel demo test test-all test-fast test-engines test-kubelet check bench bench-autoscaling bench-chaos bench-reclaim-kinds ci components components-engines lock docs chart dashboards manifests krew golden clean

# `python3` may be an older one; where there is a python3.11 it is the one all this is tested with.
PYTHON ?= $(or $(shell python3.11 -c 'import sys; print(sys.executable)' 2>/dev/null),python3)
UV := $(or $(shell command -v uv 2>/dev/null),.build/uv/bin/uv)
BIN := .venv/bin
# Without compiled files every program that a test starts would compile the whole package first.
unexport PYTHONDONTWRITEBYTECODE
DEMO_ADDRESS ?= 127.0.0.1:8080
# A file of tests runs in one worker. Two workers more than cores: the longest files wait for processes most of their time.
WORKERS ?= $(shell expr $$(nproc) + 2)
# Without npm, or with an older Node, the web UI is left out, and the tests that need it are skipped with a reason.
WEB := $(shell command -v npm >/dev/null && node web/check-node.cjs && echo web)
NODE_MODULES := $(if $(WEB),web/node_modules/.ready)
BUNDLE := src/gpusteward/analyzer/api/ui/static/index.html
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/ready $(WEB) ## the whole product on 40 simulated nodes; prints its address
	$(BIN)/gpusteward demo --address $(DEMO_ADDRESS)

test: .venv/ready $(WEB) ## tests, but those of the whole system; what needs a component that is not installed is skipped with a reason
	$(PYTEST) -m 'not system'

test-all: .venv/ready $(WEB) ## all tests, also in a browser, on a control plane, of the demo and of installed packages
	$(PYTEST)

test-fast: .venv/ready $(WEB) ## tests without the slow files, for the edit loop
	$(PYTEST) -m 'not slow'

check: .venv/ready $(NODE_MODULES) ## format, lint, types, import contracts, size of the packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/budgets.py
	$(if $(WEB),npm --prefix web run --silent check)

bench: .venv/ready web ## measure; results with their commands go to bench/results/
	$(BIN)/python -m bench.agent
	$(BIN)/python -m bench.judge_truth
	$(BIN)/python -m bench.scenes
	$(BIN)/python -m bench.useful
	$(BIN)/python -m bench.sites
	$(BIN)/python -m bench.analyzer
	$(BIN)/python -m bench.requests
	$(BIN)/python -m bench.sharded
	$(BIN)/python -m bench.scrape
	$(BIN)/python -m bench.ledger
	$(BIN)/python -m bench.replay
	$(BIN)/python -m bench.reclaim
	$(BIN)/python -m bench.attacks
	$(BIN)/python -m bench.demo
	$(BIN)/python -m bench.rehearsal
	$(BIN)/python -m bench.web

bench-chaos: .venv/ready ## reclaim under faults, 500 workloads over 20 simulated days; needs components; writes bench/results/chaos.md
	$(BIN)/python -m bench.chaos

bench-reclaim-kinds: .venv/ready ## from the decision to free GPUs, kind by kind; needs components; writes bench/results/reclaim-kinds.md
	GPUSTEWARD_NO_SKIP=1 GPUSTEWARD_WRITE_RESULTS=1 $(BIN)/python -m pytest -q tests/analyzer/reclaim/test_real_kinds.py

bench-autoscaling: .venv/ready ## autoscaling on GPU use, end to end; needs components; writes bench/results/autoscaling.md
	GPUSTEWARD_NO_SKIP=1 GPUSTEWARD_WRITE_RESULTS=1 $(BIN)/python -m pytest -q tests/deploy/test_autoscaling.py

ci: components check web ## what CI runs: real components installed, a skip is a failure
	GPUSTEWARD_NO_SKIP=1 $(PYTEST)

components-engines: ## build Thanos, Mimir and a current VictoriaMetrics, once (about 15 minutes of CPU time; needs Go)
	.ci/engines

test-engines: .venv/ready ## the engine contract test over them; writes bench/results/engines.md
	GPUSTEWARD_ENGINES="$$(.ci/engines)" $(BIN)/python -m pytest tests/engines

test-kubelet: .venv/ready ## attribution on a real kubelet, containerd and runc; needs root; writes bench/results/kubelet.md
	.ci/kubelet

components: .venv/ready ## install the real components the tests use (Debian packages; those that are built need Go)
	.ci/components
	.ci/dcgm-headers
	.ci/kubernetes
	.ci/dashboard-linter
	.ci/helm
	.ci/hadolint
	.ci/prometheus-adapter
	.ci/keda
	.ci/crds
	.ci/actionlint

docs: .venv/ready ## write the generated reference pages
	$(BIN)/python -m docs.generate

chart: .venv/ready ## write the generated files of the chart: README.md, values.schema.json, rights and settings
	$(BIN)/python -m deploy.chart.generate

dashboards: .venv/ready ## write the JSON of the Grafana dashboards
	$(BIN)/python -m deploy.dashboards.generate

manifests: .venv/ready ## render deploy/manifests/ from the chart
	$(BIN)/python -m deploy.chart.manifests

krew: .venv/ready ## write the plugin for krew and its manifest to .build/krew, to be published below URL
	$(BIN)/python -m deploy.krew.package .build/krew $(URL)

golden: .venv/ready ## write the golden pages anew; read the diff before you commit it
	GPUSTEWARD_WRITE_GOLDEN=1 $(BIN)/python -m pytest tests/agent/test_golden_pages.py tests/cli tests/deploy/test_chart.py tests/analyzer/api

LOCK := pip compile -q --upgrade --generate-hashes --no-emit-index-url --universal --python-version 3.11 --no-header

lock: $(UV) ## pin every dependency with hashes, naming no index
	$(UV) $(LOCK) --all-extras --group dev pyproject.toml -o requirements/dev.txt
	$(UV) $(LOCK) --group agent -c requirements/dev.txt -o requirements/agent.txt
	$(UV) $(LOCK) --group analyzer -c requirements/dev.txt -o requirements/analyzer.txt
	$(UV) $(LOCK) --group cli -c requirements/dev.txt -o requirements/cli.txt
	$(UV) $(LOCK) -c requirements/dev.txt pyproject.toml -o requirements/demo.txt
	echo 'hatchling>=1.27' | $(UV) $(LOCK) -c requirements/dev.txt -o requirements/build.txt -

web: $(BUNDLE) ## build the web UI into the package (needs Node 20.19 or newer); nothing is done when nothing changed

$(BUNDLE): web/node_modules/.ready $(shell find web -type f -not -path 'web/node_modules/*' 2>/dev/null)
	npm --prefix web run --silent build
	@touch $@

web/node_modules/.ready: web/package.json web/package-lock.json
	npm --prefix web ci --no-audit --no-fund --prefer-offline --loglevel=error
	@touch $@

types: .venv/ready web/node_modules/.ready ## write the API types of the web UI from the OpenAPI document
	$(BIN)/python -m docs.openapi web/openapi.json
	npm --prefix web run --silent types

wheel: .venv/ready web ## build the wheel and the sdist, with the web UI, into dist/
	$(UV) build -q --no-build-isolation --python $(BIN)/python

sbom: ## software bills of materials (CycloneDX) of the images, from the locked requirements, into .build/sbom
	mkdir -p .build/sbom
	for image in agent analyzer demo; do $(PYTHON) deploy/images/make_sbom.py gpusteward-$$image requirements/$$image.txt \
		> .build/sbom/$$image.cdx.json || exit 1; done

.venv/ready: requirements/dev.txt pyproject.toml | $(UV)
	$(UV) venv -q --allow-existing --no-python-downloads --python $(PYTHON) .venv
	$(UV) pip sync -q --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

.build/uv/bin/uv:
	$(PYTHON) -m venv .build/uv
	.build/uv/bin/python -m pip install -q uv

clean: ## remove what set-up made
	rm -rf web/node_modules src/gpusteward/analyzer/api/ui/static
	rm -rf .venv .build .mypy_cache .ruff_cache .pytest_cache .hypothesis
