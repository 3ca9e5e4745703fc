// Command generate writes the plain manifests of the agent, made of its chart, into the
// given directory of charts.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"atoll.dev/atoll/tools/charts"
)

func main() {
	if err := writeAgentManifests(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func writeAgentManifests(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the directory deploy, have %d arguments", len(args))
	}
	files, err := charts.RenderAgentManifests(filepath.Join(args[0], "charts", "atoll-agent"))
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
