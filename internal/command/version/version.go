// Package version is the command `atoll version`.
//
// Contract: it makes no connection.
package version

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/output"
)

// NewCommand makes the command.
func NewCommand() *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]string{"version": atoll.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), v); done {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "atoll %s (%s, %s)\n", v["version"], v["go"], v["platform"])
			return err
		},
	}
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}
