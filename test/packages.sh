#!/bin/bash
# Prints the packages with tests in the module of the working directory, one a line, of
# the given kinds.
#
#   race    their tests link only light code: run them with -race
#   pure    they and what they call start no goroutine, so the race detector would see
#           nothing, and random walks would take many times as long; test/house holds it
#   plain   their tests link Kubernetes itself, which takes too long to build for the
#           race detector, or drive built binaries, of which it sees nothing
#   decides as plain, but the packages decide what happens to users' objects: make
#           test-short runs their tests, too
#   labs    as plain, but they bring up clusters: make test-all runs them, and make test
#           one test for each promise of the product
#   alone   as labs, but they keep the whole machine busy by themselves, and hold times and
#           budgets: run them beside no others
set -euo pipefail

for kind in "$@"; do
	case "$kind" in
	race | pure | plain | decides | labs | alone) ;;
	*) set -- ;;
	esac
done
if (($# == 0)); then
	echo "usage: $0 race|pure|plain|decides|labs|alone..." >&2
	exit 2
fi

CGO_ENABLED=0 go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... |
	awk -v want=" $* " '
		$1 !~ /\.test$/ { next }
		{
			kind = "race"
			if ($1 ~ /\/internal\/(atoll|checkin|clustermatch|freecapacity|phrase|quantity|rowcodec|writebudget|bundlecontent|manifest|overrides|policymatch|fleetlist|userfields|expr|preview|preview\/explain|preview\/offline|restore|rollout|schedule|session|agent\/ownership|sources\/render|sources\/changes|sources\/generate|sources\/commitstatus|sources\/signature|notify\/happening|notify\/message|standardwebhook)\.test$/) kind = "pure"
			if ($1 ~ /\/internal\/sources\/(fetch|builders|sourcesets\/withgit)\.test$/) kind = "plain" # its children, of which the race detector sees nothing
			if ($0 ~ / k8s\.io\/(kubernetes|apiserver)\// || $1 ~ /\/test\/(e2e|script|bench|attack|corpus|console)(\/|\.)/) kind = "plain"
			if (kind == "plain" && $1 ~ /\/internal\/(admission|binder|kinds|userfields|preview\/server)\.test$/) kind = "decides"
			if ($1 ~ /\/test\/(script|corpus|console|e2e\/tenancy)\.test$/) kind = "labs"
			if ($1 ~ /\/test\/(e2e|bench|attack)\.test$/) kind = "alone"
			sub(/\.test$/, "", $1)
			if (index(want, " " kind " ")) print $1
		}'
