//go:build race

package expr_test

// raceEnabled: under the race detector pools drop their values, so more is allocated.
const raceEnabled = true
