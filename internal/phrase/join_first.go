package phrase

import (
	"fmt"
	"strings"
)

// JoinFirst lists at most most names, and counts the others: "a, b and 3 more". all is the number of names,
// where names can be only the first of them.
func JoinFirst(names []string, most, all int) string { return joinFirst(names, ", ", " ", most, all) }

// JoinFirstBy lists at most most texts with a separator, and counts the others behind one: "x; y; and 3 more".
func JoinFirstBy(separator string, texts []string, most int) string {
	return joinFirst(texts, separator, separator, most, len(texts))
}

func joinFirst(texts []string, separator, last string, most, all int) string {
	texts = texts[:min(len(texts), most)]
	joined := strings.Join(texts, separator)
	if more := all - len(texts); more > 0 {
		joined += fmt.Sprintf("%sand %d more", last, more)
	}
	return joined
}
