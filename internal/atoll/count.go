package atoll

import "fmt"

// Count says how many there are of what takes an s where there is more than one: "1 cluster",
// "2 clusters".
func Count[N int | int32 | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
