// Command generate writes the page of reasons to the file that its argument names.
package main

import (
	"fmt"
	"os"

	"atoll.dev/atoll/internal/reasonpage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(reasonpage.RenderReasonsPage()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "write the page of reasons:", err)
		os.Exit(1)
	}
}
