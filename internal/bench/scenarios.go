package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"atoll.dev/atoll/internal/bench/progress"
	"atoll.dev/atoll/internal/bench/scenario"
)

// mostScale is far above what one machine can simulate.
const mostScale = 100

// scenarioOptions of `bench SCENARIO`.
type scenarioOptions struct {
	scenario.Options
	format, page string
}

func (o *scenarioOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "", "directory for hub and simulator, left as it is at the end (default: a temporary one)")
	f.Int64Var(&o.Seed, "seed", 1, "seed of all draws")
	f.Float64Var(&o.Scale, "scale", 1, "makes clusters and applications fewer: 0.1 is a tenth")
	f.BoolVar(&o.CountsOnly, "counts-only", false, "check nothing that depends on the machine, such as times and memory")
	f.StringVar(&o.ProfileDir, "profile-dir", "", "write profiles of hub and simulator there")
	f.StringVarP(&o.format, "output", "o", "", "json: one object on standard output, and nothing else there")
	f.StringVar(&o.page, "report", "", "write a page with charts to that file")
}

// runScenario runs the scenario of that name and tells what it found. A check that
// does not hold is an error.
func (o *scenarioOptions) runScenario(ctx context.Context, name string, out, errOut io.Writer) error {
	s, ok := scenario.Find(name)
	switch {
	case !ok:
		return fmt.Errorf("there is no scenario %q; there are %s", name, scenario.Names())
	case o.format != "" && o.format != "json":
		return fmt.Errorf("--output is %q: it is json or left out", o.format)
	case !(o.Scale > 0 && o.Scale <= mostScale): // nor is it NaN
		return fmt.Errorf("--scale is %v: it is above 0, and at most %d", o.Scale, mostScale)
	case o.Seed < 0:
		return fmt.Errorf("--seed is %d: it is 0 or more", o.Seed)
	}
	page, err := o.createPage()
	if err != nil {
		return err
	}
	// What clients in this process log of connections that are tried again would tear the
	// bar apart; what fails in the end is an error, and the scenario says it.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	bar := progress.New(errOut)
	o.Progress = bar
	r, runErr := s.Run(ctx, o.Options)
	bar.Finish()
	if err := runErr; err != nil {
		r.Check("the scenario runs to its end", false, "%v", err)
	}
	if o.format == "json" {
		err = r.WriteJSON(out)
	} else {
		err = r.WriteText(out)
	}
	if err != nil {
		return err
	}
	if page != nil {
		if err := errors.Join(r.WriteHTML(page), page.Close()); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if failed := r.Failed(); len(failed) > 0 {
		names := make([]string, len(failed))
		for i, c := range failed {
			names[i] = c.Name + " (" + c.Detail + ")"
		}
		return fmt.Errorf("%s: %d checks fail: %s", s.Name, len(failed), strings.Join(names, "; "))
	}
	return nil
}

// createPage before anything is measured, so that nothing is measured in vain; nil where
// none is asked for.
func (o *scenarioOptions) createPage() (*os.File, error) {
	if o.page == "" {
		return nil, nil
	}
	f, err := os.Create(o.page)
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return f, nil
}

func listCommand() *cobra.Command {
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
	for _, s := range scenario.All() {
		fmt.Fprintf(t, "  %s\t%s\n", s.Name, s.About)
	}
	t.Flush()
	return b.String()
}
