// Package script tests the commands that people type and their output, as scripts in
// testdata: one file per story, run against a real hub and one real member.
//
// Contract: a script runs in a directory of its own with the files that it carries,
// against a lab that all scripts share; it uses names of its own on the hub. A failing
// line fails the script with the last output. Every wait has a deadline.
//
// The lines of a script:
//
//	atoll ARGS            run the CLI against the hub
//	kubectl ARGS          run kubectl against the hub
//	member ARGS           run kubectl against the member
//	hub ARGS              run atoll-hub; ${DATA} is the hub's data directory
//	lab ARGS              run atoll-lab on the lab: kill, start, cut, heal
//	! COMMAND             the command must fail
//	until COMMAND ~ RE    run it again until it succeeds and prints what matches;
//	                      until ! COMMAND: until it fails and prints that
//	stdout RE             the last standard output matches; ! stdout: does not
//	stderr RE             the same of standard error
//	same FILE             the last standard output is the file, byte for byte
//	exits N COMMAND       the command ends with that exit code
//	keep NAME FIELD       keep a field of the last output, which is a JSON object,
//	                      to be used as ${NAME}; ${MEMBER} is the member's kubeconfig
//
// Pages of docs are played too: see playDocument.
package script
