package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"atoll.dev/atoll/lab/bench/progress"
	"atoll.dev/atoll/lab/bench/scenario"
)

// mostScale is far above the capacity of one machine.
const mostScale = 100

// scenarioOptions are the options of `bench SCENARIO`.
type scenarioOptions struct {
	scenario.Options
	format string
}

func (o *scenarioOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "", "directory for hub and simulator, left as it is at the end (default: a temporary one)")
	f.Int64Var(&o.Seed, "seed", 1, "seed of all draws")
	f.Float64Var(&o.Scale, "scale", 1, "makes clusters and applications fewer: 0.1 is a tenth")
	f.BoolVar(&o.CountsOnly, "counts-only", false, "check nothing that depends on the machine, such as times and memory")
	f.StringVar(&o.ProfileDir, "profile-dir", "", "write profiles of hub and simulator there")
	f.StringVarP(&o.format, "output", "o", "", "json: one object with all samples on standard output, and nothing else there")
}

// runScenario runs the scenario of that name and writes its report. A failed check is an
// error.
func (o *scenarioOptions) runScenario(ctx context.Context, name string, out, errOut io.Writer) error {
	s, ok := scenario.Find(name)
	switch {
	case !ok:
		return fmt.Errorf("there is no scenario %q; there are %s", name, scenario.JoinedScenarioNames())
	case o.format != "" && o.format != "json":
		return fmt.Errorf("--output is %q: it is json or left out", o.format)
	case !(o.Scale > 0 && o.Scale <= mostScale): // nor is it NaN
		return fmt.Errorf("--scale is %v: it is above 0, and at most %d", o.Scale, mostScale)
	case o.Seed < 0:
		return fmt.Errorf("--seed is %d: it is 0 or more", o.Seed)
	}
	// Logs of retried connections in this process would break the progress bar; a final
	// failure is an error of the scenario.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	bar := progress.NewProgressBar(errOut)
	o.Progress = bar
	r, runErr := s.Run(ctx, o.Options)
	bar.FinishStep()
	if runErr != nil {
		r.AddCheck("the scenario runs to its end", false, "%v", runErr)
	}
	write := r.WriteText
	if o.format == "json" {
		write = r.WriteJSON
	}
	if err := write(out); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if failed := r.FailedChecks(); len(failed) > 0 {
		names := make([]string, len(failed))
		for i, c := range failed {
			names[i] = c.Name + " (" + c.Detail + ")"
		}
		return fmt.Errorf("%s: %d checks fail: %s", s.Name, len(failed), strings.Join(names, "; "))
	}
	return nil
}

func listScenariosCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the scenarios", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), scenarioTable())
			return err
		},
	}
}

// scenarioTable has a line per scenario.
func scenarioTable() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, s := range scenario.AllScenarios() {
		fmt.Fprintf(t, "  %s\t%s\n", s.Name, s.About)
	}
	t.Flush()
	return b.String()
}
