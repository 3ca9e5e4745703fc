#!/bin/bash
# Prints the packages that have tests, one a line.
#
#   packages.sh race    whose tests link only light code: run them with -race
#   packages.sh plain   whose tests link Kubernetes itself, which takes too long to
#                       build for the race detector, or drive built binaries, of
#                       which it sees nothing
set -euo pipefail

case "${1:-}" in
race | plain) ;;
*)
	echo "usage: $0 race|plain" >&2
	exit 2
	;;
esac

CGO_ENABLED=0 go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... |
	awk -v want="$1" '
		$1 !~ /\.test$/ { next }
		{
			kind = "race"
			if ($0 ~ / k8s\.io\/(kubernetes|apiserver)\// || $1 ~ /\/test\/(e2e|script|bench)(\/|\.)/) kind = "plain"
			sub(/\.test$/, "", $1)
			if (kind == want) print $1
		}'
