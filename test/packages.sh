#!/bin/bash
# Prints the packages that have tests, one a line, of the kinds that are asked for.
#
#   race    their tests link only light code: run them with -race
#   pure    they and what they call start no goroutine, so the race detector would see
#           nothing, and random walks would take many times as long; test/house holds it
#   plain   their tests link Kubernetes itself, which takes too long to build for the
#           race detector, or drive built binaries, of which it sees nothing
#   alone   as plain, but they keep the whole machine busy by themselves, and hold times:
#           run them beside no others
#   budgets as alone, but they hold small runs of the benchmarks to budgets: make test-all
#           runs them
set -euo pipefail

for kind in "$@"; do
	case "$kind" in
	race | pure | plain | alone | budgets) ;;
	*) set -- ;;
	esac
done
if (($# == 0)); then
	echo "usage: $0 race|pure|plain|alone|budgets..." >&2
	exit 2
fi

CGO_ENABLED=0 go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... |
	awk -v want=" $* " '
		$1 !~ /\.test$/ { next }
		{
			kind = "race"
			if ($1 ~ /\/internal\/(atoll|claim|explain|expr|offline|plan|rewind|rollout|schedule|session|agent\/claims)\.test$/) kind = "pure"
			if ($0 ~ / k8s\.io\/(kubernetes|apiserver)\// || $1 ~ /\/test\/(e2e|script|bench)(\/|\.)/) kind = "plain"
			if ($1 ~ /\/test\/e2e\.test$/) kind = "alone"
			if ($1 ~ /\/test\/bench\.test$/) kind = "budgets"
			sub(/\.test$/, "", $1)
			if (index(want, " " kind " ")) print $1
		}'
