package atoll

import (
	"fmt"
	"strconv"
)

// MaxWave bounds the number of a wave, above and below zero.
const MaxWave = 1_000_000

// ParseWave reads the number of a wave from an annotation.
func ParseWave(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || !IsWave(int32(n)) {
		return 0, fmt.Errorf("a wave is a whole number from %d to %d, and not %q", -MaxWave, MaxWave, text)
	}
	return int32(n), nil
}

// IsWave reports whether a wave has the number.
func IsWave(n int32) bool { return -MaxWave <= n && n <= MaxWave }
