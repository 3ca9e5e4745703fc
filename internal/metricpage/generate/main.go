// Command generate writes the page of metrics to the file that its argument names.
package main

import (
	"fmt"
	"os"

	"atoll.dev/atoll/internal/metricpage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(metricpage.RenderMetricPage()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "write the page of metrics:", err)
		os.Exit(1)
	}
}
