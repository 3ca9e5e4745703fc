// Package bench measures the numbers of the README on this machine, from outside, as a user
// sees them.
//
// Contract: it starts a lab of its own in a temporary directory and ends it. The cost of
// cores is measured before, in this process. Every number comes with its derivation. Counts
// are exact for the run. Times and sizes are those of the machine at the moment, so nothing
// else should run on it.
package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// benchNumber is one line of the result.
type benchNumber struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  string  `json:"goal,omitempty"`
	How   string  `json:"how"`
	// Detail lists the parts of the value.
	Detail string `json:"detail,omitempty"`
	// Allocations and their bytes are those of one run, if they are counted.
	Allocations *float64 `json:"allocations,omitempty"`
	Bytes       *float64 `json:"bytes,omitempty"`
}

type benchOptions struct {
	rounds  int
	idle    time.Duration
	objects int
	json    bool
	table   bool
}

// NewCommand returns the command `atoll-lab bench`.
func NewCommand() *cobra.Command {
	var o benchOptions
	var so scenarioOptions
	cmd := &cobra.Command{
		Use:   "bench [SCENARIO]",
		Short: "Measure a hub: with three clusters, or with thousands of simulated agents",
		Long: `Measure a hub on this machine.

Without a scenario: what decisions, divisions and renderings cost in a large fleet, and
start, memory, latency and writes with three real clusters, the numbers of the README.
With one: a hub and simulated agents, what that costs, and
whether it is what it has to be; the exit code shows this. The scenarios are:

` + scenarioTable(),
		Example: `  atoll-lab bench place-100 --scale 0.1
  atoll-lab bench pairs-100k -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.rejectIgnoredFlags(cmd, len(args) == 1); err != nil {
				return err
			}
			if len(args) == 1 {
				return so.runScenario(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			numbers, err := withTemporaryDir(func(dir string) ([]benchNumber, error) {
				return o.measureAll(cmd.Context(), dir, cmd.ErrOrStderr())
			})
			if err != nil {
				return err
			}
			return o.writeNumbers(cmd.OutOrStdout(), numbers)
		},
	}
	o.addRoundsFlag(cmd)
	cmd.Flags().DurationVar(&o.idle, "idle", 30*time.Second, "how long to leave a process alone before its memory is read")
	cmd.Flags().IntVar(&o.objects, "objects", 50, "objects that the agent holds when its memory is read")
	o.addFormatFlags(cmd)
	so.addFlags(cmd)
	cmd.AddCommand(listScenariosCommand(), measureDecisionLogicCommand(), latencyCommand(), proxyLatencyCommand())
	return cmd
}

func (o *benchOptions) addRoundsFlag(cmd *cobra.Command) {
	cmd.Flags().IntVar(&o.rounds, "rounds", 40, "Deployments to apply for the latency")
}

func (o *benchOptions) addFormatFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.table, "markdown", false, "print the table of the README")
	cmd.MarkFlagsMutuallyExclusive("json", "markdown")
}

// writeNumbers writes the numbers in the requested format.
func (o benchOptions) writeNumbers(out io.Writer, numbers []benchNumber) error {
	switch {
	case o.json:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(numbers)
	case o.table:
		return printMarkdown(out, numbers)
	}
	return printTable(out, numbers)
}

// rejectIgnoredFlags refuses flags that would be ignored: scenario flags without a
// scenario, and the other way round.
func (o benchOptions) rejectIgnoredFlags(cmd *cobra.Command, scenario bool) error {
	var wrong []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if ours := slices.Contains([]string{"rounds", "idle", "objects", "json", "markdown"}, f.Name); ours == scenario {
			wrong = append(wrong, "--"+f.Name)
		}
	})
	if len(wrong) == 0 {
		return nil
	}
	if scenario {
		return fmt.Errorf("%s: not for a scenario; -o json prints JSON", strings.Join(wrong, ", "))
	}
	return fmt.Errorf("%s: for scenarios only; name one, such as place-100", strings.Join(wrong, ", "))
}

// describeMachine describes the machine of the numbers.
func describeMachine() string {
	return fmt.Sprintf("%d CPUs, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

func (n benchNumber) formatValue() string {
	digits := 0
	if n.Unit == "s" || (n.Unit == "ms" || n.Allocations != nil) && n.Value < 10 {
		digits = 2
	}
	return fmt.Sprintf("%.*f %s", digits, n.Value, n.Unit) + n.formatAllocations()
}

// formatAllocations returns the text behind the value if allocations are counted.
func (n benchNumber) formatAllocations() string {
	switch {
	case n.Allocations == nil:
		return ""
	case *n.Allocations < 0.5:
		return ", no allocation"
	}
	size := fmt.Sprintf("%.0f B", *n.Bytes)
	switch {
	case *n.Bytes >= 1e6:
		size = fmt.Sprintf("%.1f MB", *n.Bytes/1e6)
	case *n.Bytes >= 1e3:
		size = fmt.Sprintf("%.0f kB", *n.Bytes/1e3)
	}
	return fmt.Sprintf(", %s in %.0f allocations", size, *n.Allocations)
}

// printTable prints a table, and below it the parts of the values.
func printTable(out io.Writer, numbers []benchNumber) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "NUMBER\tVALUE\tGOAL\tHOW (%s)\n", describeMachine())
	for _, n := range numbers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.What, n.formatValue(), cmp.Or(n.Goal, "-"), n.How)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, n := range numbers {
		if n.Detail != "" {
			fmt.Fprintf(out, "\n%s: %s\n", n.What, n.Detail)
		}
	}
	return nil
}

func printMarkdown(out io.Writer, numbers []benchNumber) error {
	fmt.Fprintf(out, "| Number | Value | Goal | How (%s) |\n|---|---|---|---|\n", describeMachine())
	for _, n := range numbers {
		if _, err := fmt.Fprintf(out, "| %s | %s | %s | %s |\n", n.What, n.formatValue(), n.Goal, n.How); err != nil {
			return err
		}
	}
	return nil
}

// measureAll measures every number, in labs below dir.
func (o benchOptions) measureAll(ctx context.Context, dir string, progress io.Writer) (numbers []benchNumber, err error) {
	fmt.Fprintln(progress, "decisions, divisions and renderings")
	if numbers, err = measureDecisionLogic(); err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "a hub alone")
	alone, err := o.measureFreshAndRestartedHub(ctx, filepath.Join(dir, "hub"))
	if err != nil {
		return nil, err
	}
	numbers = append(numbers, alone...)
	more, err := withThreeMembers(ctx, dir, progress, func(ctx context.Context, b *labBench) (numbers []benchNumber, err error) {
		for _, part := range []func(context.Context, benchOptions) ([]benchNumber, error){b.measureLatency, b.countHubWrites, b.measureLabProxyLatency, b.measureAgentMemory} {
			more, err := part(ctx, o)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, more...)
		}
		return numbers, nil
	})
	return append(numbers, more...), err
}
