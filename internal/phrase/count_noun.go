package phrase

import "fmt"

// CountNoun formats a number with a noun whose plural takes an s: "1 cluster", "2 clusters".
func CountNoun[N int | int32 | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
