package interpret

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

type interpretTestOptions struct {
	with    string
	verbose bool
}

// NewTestCommand returns the command that runs cases.
func NewTestCommand() *cobra.Command {
	o := &interpretTestOptions{}
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Test interpreters with a folder of cases",
		Long: `Test interpreters with a folder of cases.

A case is a YAML or JSON file with these fields, or a directory with files of these names:

  object    the object, which needs no metadata.name; in a directory object.yaml
  observed  the object as a member has it; observed.yaml
  items     statuses of many members, each {clusterName, status}; items.yaml
  with      the file or directory of the interpreter, relative to the case; with.yaml or with.lua
  op        runs one operation alone; in a directory a field of ask.yaml
  replicas  the number to revise the object to; likewise
  expect    the answers; expected.json or expected.yaml
  error     instead of expect: a part of the error

object, observed and items can name files instead. The command compares the answers that
expect has, each as a whole; null expects no answer. Files without object, expect and error
are no cases. The command descends into directories.

The exit code is 1 if a case fails, and each difference is printed.`,
		Example: `  atoll interpret test interpreters/
  atoll interpret test cases/ --with flink.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().StringVar(&o.with, "with", "", "interpreters of cases that name none: a file, a directory, or oci://REGISTRY/REPOSITORY:TAG")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list the cases that pass too")
	return cmd
}

func (o *interpretTestOptions) run(ctx context.Context, out io.Writer, dir string) error {
	cases, err := findCases(dir)
	if err != nil {
		return err
	}
	if len(cases) == 0 {
		return fmt.Errorf("%s: there are no cases: files that have object, expect or error, or directories with an object.yaml", dir)
	}
	read := newInterpreterReader(ctx)
	failed := 0
	for _, c := range cases {
		differences := c.findDifferences(o.with, read)
		switch {
		case len(differences) > 0:
			failed++
			fmt.Fprintf(out, "FAIL  %s\n", c.name)
			for _, d := range differences {
				fmt.Fprintf(out, "      %s\n", d)
			}
		case o.verbose:
			fmt.Fprintf(out, "ok    %s\n", c.name)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases fail", failed, len(cases))
	}
	fmt.Fprintf(out, "%s\n", passSummary(len(cases)))
	return nil
}

func passSummary(n int) string {
	if n == 1 {
		return "1 case passes"
	}
	return fmt.Sprintf("%d cases pass", n)
}

var errNoInterpreter = errors.New("it names no interpreter: add with, or give --with")
