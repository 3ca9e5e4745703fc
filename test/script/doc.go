// Package script tells what people type and what they get, as scripts in testdata:
// one file per story, run against a hub and one member that are real.
//
// Contract: a script runs in a directory of its own with the files that it carries,
// against a lab that all scripts share; it uses names of its own on the hub. A line
// that does not come true fails the script with what was printed last. Nothing is
// waited for without a deadline.
//
// The lines of a script:
//
//	atoll ARGS            run the CLI against the hub
//	kubectl ARGS          run kubectl against the hub
//	member ARGS           run kubectl against the member
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
// Documents are played too: see document.
package script
