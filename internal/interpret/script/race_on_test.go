//go:build race

package script

// raced: the race detector makes everything many times slower.
const raced = true
