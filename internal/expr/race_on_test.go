//go:build race

package expr_test

// raced: the race detector has pools forget what they keep, so that more is made.
const raced = true
