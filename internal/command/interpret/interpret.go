// Package interpret is the command `atoll interpret`: what Atoll makes of an object of any
// kind, and whether interpreters that users wrote say what they should.
//
// Contract: no hub is asked and nothing is written; the functions that act answer. Equal
// files give equal output.
package interpret

import "github.com/spf13/cobra"

// NewCommand makes the command.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "interpret",
		Short: "Tell what Atoll makes of an object, from files alone",
	}
	cmd.AddCommand(NewTestCommand())
	return cmd
}
