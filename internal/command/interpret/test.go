package interpret

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

type testOptions struct {
	with    string
	verbose bool
}

// NewTestCommand makes the command that runs cases.
func NewTestCommand() *cobra.Command {
	o := &testOptions{}
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Run a folder of cases: do interpreters say what they should?",
		Long: `Run a folder of cases: do interpreters say what they should?

A case is a YAML or JSON file with these fields, or a directory with files of these names:

  object    what is asked about; in a directory object.yaml
  observed  the object as a member has it; observed.yaml
  items     statuses of many members, each {clusterName, status}; items.yaml
  with      the interpreter: a file, from where the case is; with.yaml or with.lua
  op        asks one question alone; in a directory a field of ask.yaml
  replicas  to revise the object to; likewise
  expect    the answers; expected.json or expected.yaml
  error     instead of expect: a part of the error

object, observed and items may name files instead. Of the answers those are compared that
expect has, each as a whole; null expects that there is none. Files that have none of
object, expect and error are no cases. Directories are gone into.

The exit code is 1 if a case fails, and each difference is printed.`,
		Example: `  atoll interpret test interpreters/
  atoll interpret test cases/ --with flink.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.OutOrStdout(), args[0])
		},
	}
	cmd.Flags().StringVar(&o.with, "with", "", "interpreter of cases that name none")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list the cases that pass too")
	return cmd
}

func (o *testOptions) run(out io.Writer, dir string) error {
	cases, err := findCases(dir)
	if err != nil {
		return err
	}
	if len(cases) == 0 {
		return fmt.Errorf("%s: there are no cases: files that have object, expect or error, or directories with an object.yaml", dir)
	}
	failed := 0
	for _, c := range cases {
		differences := c.differences(o.with)
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
	fmt.Fprintf(out, "%s\n", passed(len(cases)))
	return nil
}

func passed(n int) string {
	if n == 1 {
		return "1 case passes"
	}
	return fmt.Sprintf("%d cases pass", n)
}

var errNoInterpreter = errors.New("it names no interpreter: add with, or give --with")
