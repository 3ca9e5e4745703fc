// Package console walks the hub's web console with a real browser, against a lab of two members.
//
// Contract: the tests need the built binaries and Debian's chromium; without chromium they are skipped. They
// share one lab, which ends with them.
package console
