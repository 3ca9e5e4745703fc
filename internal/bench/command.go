// Package bench measures the numbers of the README on this machine, from outside,
// as a user gets them.
//
// Contract: it starts a lab of its own in a temporary directory and ends it; what cores
// cost is measured in this process before. Every number says how it came about. Counts are exact for the run; times and sizes are
// those of the machine at the moment, so nothing else should run on it.
package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"atoll.dev/atoll/internal/lab"
)

// number is one line of the result.
type number struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Goal  string  `json:"goal,omitempty"`
	How   string  `json:"how"`
	// Detail is what the value is made up of.
	Detail string `json:"detail,omitempty"`
	// Allocations of one run and their bytes, where those are counted.
	Allocations *float64 `json:"allocations,omitempty"`
	Bytes       *float64 `json:"bytes,omitempty"`
}

type options struct {
	rounds  int
	idle    time.Duration
	objects int
	json    bool
	table   bool
}

// NewCommand makes the command `atoll-lab bench`.
func NewCommand() *cobra.Command {
	var o options
	var so scenarioOptions
	cmd := &cobra.Command{
		Use:   "bench [SCENARIO]",
		Short: "Measure a hub: with three clusters, or with thousands of simulated agents",
		Long: `Measure a hub on this machine.

Without a scenario: what decisions, divisions and renderings cost in a large fleet, and
start, memory, latency and writes with three real clusters, the numbers of the README.
With one: a hub and simulated agents, what that costs, and
whether it is what it has to be; the exit code tells. The scenarios are:

` + scenarioTable(),
		Example: `  atoll-lab bench place-100 --scale 0.1
  atoll-lab bench pairs-100k -o json --report pairs.html`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.fitting(cmd, len(args) == 1); err != nil {
				return err
			}
			if len(args) == 1 {
				return so.runScenario(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			numbers, err := o.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.tell(cmd.OutOrStdout(), numbers)
		},
	}
	cmd.Flags().IntVar(&o.rounds, "rounds", 40, "Deployments to apply for the latency")
	cmd.Flags().DurationVar(&o.idle, "idle", 30*time.Second, "how long to leave a process alone before its memory is read")
	cmd.Flags().IntVar(&o.objects, "objects", 50, "objects that the agent holds when its memory is read")
	o.addFormats(cmd)
	so.addFlags(cmd)
	cmd.AddCommand(listCommand(), brainCommand(), reachCommand())
	return cmd
}

func (o *options) addFormats(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.table, "markdown", false, "print the table of the README")
	cmd.MarkFlagsMutuallyExclusive("json", "markdown")
}

// tell the numbers in the format that is asked for.
func (o options) tell(out io.Writer, numbers []number) error {
	switch {
	case o.json:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(numbers)
	case o.table:
		return printMarkdown(out, numbers)
	}
	return print(out, numbers)
}

// fitting refuses flags that would be ignored: those of scenarios where none is asked for,
// and the other way round.
func (o options) fitting(cmd *cobra.Command, scenario bool) error {
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

// machine that the numbers are of.
func machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

func (n number) value() string {
	digits := 0
	if n.Unit == "s" || (n.Unit == "ms" || n.Allocations != nil) && n.Value < 10 {
		digits = 2
	}
	return fmt.Sprintf("%.*f %s", digits, n.Value, n.Unit) + n.allocated()
}

// allocated is behind the value where allocations are counted.
func (n number) allocated() string {
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

// print a table, and below it what the values are made up of.
func print(out io.Writer, numbers []number) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "NUMBER\tVALUE\tGOAL\tHOW (%s)\n", machine())
	for _, n := range numbers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.What, n.value(), cmp.Or(n.Goal, "-"), n.How)
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

func printMarkdown(out io.Writer, numbers []number) error {
	fmt.Fprintf(out, "| Number | Value | Goal | How (%s) |\n|---|---|---|---|\n", machine())
	for _, n := range numbers {
		if _, err := fmt.Fprintf(out, "| %s | %s | %s | %s |\n", n.What, n.value(), n.Goal, n.How); err != nil {
			return err
		}
	}
	return nil
}

func (o options) run(ctx context.Context, progress io.Writer) (numbers []number, err error) {
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(progress, "decisions, divisions and renderings")
	if numbers, err = brainNumbers(); err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "a hub alone")
	alone, err := o.hubAlone(ctx, filepath.Join(dir, "hub"))
	if err != nil {
		return nil, err
	}
	numbers = append(numbers, alone...)
	fmt.Fprintln(progress, "a hub and three members")
	l, err := lab.Up(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Members: len(members), Nodes: 3, Progress: progress})
	defer func() {
		if opened, openErr := lab.Open(filepath.Join(dir, "lab")); openErr == nil {
			err = errors.Join(err, opened.Delete(context.WithoutCancel(ctx)))
		}
	}()
	if err != nil {
		return nil, err
	}
	b, err := newBench(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context, options) ([]number, error){b.latency, b.writes, b.reach, b.agentMemory} {
		more, err := part(ctx, o)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, more...)
	}
	return numbers, nil
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
