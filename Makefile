# What a developer needs. `make help` lists it; longer logic is in tests/tools.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# molecule/shared is no scenario.
export MOLECULE_GLOB := molecule/*/molecule.yml
# Emulated machines take their time for sudo while another lane has the processor.
export ANSIBLE_TIMEOUT := 120
# Hosts can be made and removed whatever state the cluster file is in.
export MOLECULE_ANSIBLE_ARGS_STRICT_MODE := 1

ready := .venv/.ready
newest = $(lastword $(shell ls -d .venv .venv-new 2> /dev/null))
typed := .cache/types/ansible_collections/gpucluster/slurm
demo := inventory/demo/demo.cluster.yml
demo-hosts := .lab/default/ssh_config
demo-ssh := ANSIBLE_SSH_COMMON_ARGS='-F $(CURDIR)/$(demo-hosts)'

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | column -ts "$$(printf '\t')"

setup: ## the machine's packages and .venv, from the lock file (PYTHON=... chooses the interpreter)
	@tests/tools/setup
	@touch $(ready)

$(ready): requirements.lock tests/tools/setup
	@$(MAKE) --no-print-directory setup

lock: $(ready) ## requirements.lock anew, the newest versions
	uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock' requirements.in --output-file requirements.lock

# Scenarios with hosts of the same names are one lane, the longest; then come the others, the short ones last.
test: $(ready) ## everything below, two stages at a time, with a count at the end
	@tests/tools/stages 'doc-lint molecule-default runner molecule-slurm-22.05 molecule-slurm-26.05' 'lint unit sanity' \
	  molecule-containers molecule-single molecule-machines molecule-gpu

lint: $(ready) ## yamllint, ruff, mypy, shellcheck, ansible-lint; each is a target, too
	@$(MAKE) --no-print-directory --keep-going yamllint ruff mypy shellcheck ansible-lint

yamllint: $(ready)
	yamllint --strict .

ruff: $(ready)
	ruff check
	ruff format --check

mypy: $(ready)
	@mkdir -p $(dir $(typed)) && ln -sfn $(CURDIR) $(typed)
	mypy $(typed)/plugins $(typed)/tests $(typed)/roles/*/files/*.py

shellcheck:
	shellcheck --external-sources .ci/run $$(git grep -lE '^#!.*(ba)?sh$$' -- tests roles ':!*.py' ':!*.md' ':!*.yml' ':!*.j2')

ansible-lint: $(ready)
	ansible-lint --profile production --offline --nocolor

sanity: $(ready) ## ansible-test sanity, with the newest ansible-core
	tests/tools/sanity $(newest)

unit: $(ready) ## unit tests, with each environment
	@status=0; for environment in $(wildcard .venv .venv-new); do \
	  echo "==> $$environment"; $$environment/bin/pytest -q tests/unit || status=1; done; exit $$status

doc-lint: $(ready) ## changelog, documentation of plugins and roles, tables in the roles' READMEs
	antsibull-changelog lint
	antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=self --skip-rstcheck .
	tests/tools/role_tables --check

docs: $(ready) ## write the tables of variables in the roles' READMEs, from their argument specs
	tests/tools/role_tables

# One machine is enough to show that the collection runs on the newest ansible-core as well.
molecule-single: export PATH := $(CURDIR)/$(newest)/bin:$(PATH)

molecule-%: $(ready) ## one scenario of the folder molecule: molecule-default, molecule-single, ...
	molecule test -s $*

runner: $(ready) ## the playbooks through ansible-runner, from bare hosts, cancelled at three points
	molecule destroy -s default
	molecule create -s default
	pytest -v tests/integration/runner
	molecule destroy -s default

benchmark: $(ready) ## what site.yml, 10,000 nodes and 3,000 users take, as ratios (docs/benchmarks.md)
	python tests/benchmark/site.py
	python tests/benchmark/scale.py
	molecule converge -s single
	python tests/benchmark/accounting.py

demo: $(ready) ## a cluster in containers on this machine: made, set up, validated; run again, it repairs
	@echo '==> containers'
	@molecule reset -s default
	@molecule create -s default
	@echo '==> gpucluster.slurm.site'
	@$(demo-ssh) ansible-playbook gpucluster.slurm.site -i $(demo) --skip-tags validate
	@echo '==> gpucluster.slurm.validate'
	@$(demo-ssh) ansible-playbook gpucluster.slurm.validate -i $(demo)
	@echo '==> sinfo'
	@ssh -F $(demo-hosts) login1 timeout 20 sinfo
	@echo 'Log in: ssh -F $(demo-hosts) login1    then: srun -N2 hostname    Remove it: make demo-clean'

demo-clean: $(ready) ## remove the containers of `make demo`
	molecule destroy -s default

.PHONY: help setup lock test lint yamllint ruff mypy shellcheck ansible-lint sanity unit doc-lint docs runner benchmark demo demo-clean
