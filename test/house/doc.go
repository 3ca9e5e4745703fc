// Package house holds the rules of the house as ordinary tests: imports with the
// reason of each forbidden one, lengths, words, and the libraries of light binaries.
// They also check that generated files are fresh, and that a named test honours every
// field of the API.
//
// Contract: the tests read the source tree and run the go command; they change
// nothing, need no network and no built binary, and name file, line and rule in
// every complaint.
package house
