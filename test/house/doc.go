// Package house holds the rules of the house as ordinary tests: which package
// may import which and why not, how long things may grow, what the light
// binaries stay free of, that generated files are fresh, and that every field of
// the API is honoured by a named test.
//
// Contract: the tests read the source tree and run the go command; they change
// nothing, need no network and no built binary, and name file, line and rule in
// every complaint.
package house
