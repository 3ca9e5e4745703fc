// Package schedule is the command `atoll schedule`: where files alone would be placed.
//
// Contract: no hub is called and nothing is written; the functions that act on a hub
// decide. Equal files give equal output, byte for byte, whatever their order.
package schedule

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/command/files"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/preview/offline"
)

type scheduleOptions struct {
	files     files.FileFlags
	format    output.Format
	namespace string
	at        string
}

// NewCommand makes the command.
func NewCommand() *cobra.Command {
	o := &scheduleOptions{}
	cmd := &cobra.Command{
		Use:   "schedule -f FILE|DIR...",
		Short: "Show from files alone where they would be placed, as JSON",
		Long: `Show from files alone where they would be placed, as JSON.

The files hold Clusters, policies, Placements, overrides and templates, and, where they
matter, ClusterSets and their bindings, ClusterScores, ResourceInterpreters and HubSettings.
No hub is called: the same functions decide that decide on a hub. Equal files give equal output, so that it
can be compared in a pipeline with what was approved.

A Cluster without spec.accepted counts as accepted, and without a ClusterSet
named default there is the one of a fresh hub, on which every namespace without a binding
may place. What members report counts as far as it is in the Clusters' status. Rights
of writers are not checked. Among clusters of equal claims a hub may choose another one,
since it breaks ties by UIDs that files do not have.

The exit code is 0 when all is decided, whether or not a cluster fits, and 1 when the
files cannot be read or hold what the schemas, expressions and scripts of Atoll's kinds do
not admit. What else a hub refuses, atoll plan shows.`,
		Example: `  atoll schedule -f clusters.yaml -f shop/
  atoll schedule -f fleet/ -R | jq '.bundles[].clusters[] | select(.outcome == "Placed")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	o.files.AddTo(cmd.Flags())
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace of objects that name none")
	cmd.Flags().StringVar(&o.at, "at", "", "decide as of this time, RFC 3339 (default: before anything expires)")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *scheduleOptions) run(ctx context.Context, in io.Reader, out io.Writer) error {
	var now time.Time
	if o.at != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, o.at); err != nil {
			return fmt.Errorf("--at: %w", err)
		}
	}
	objects, err := o.files.Read(ctx, in)
	if err != nil {
		return err
	}
	w, err := offline.NewWorld(objects, o.namespace)
	if err != nil {
		return err
	}
	outcome, err := w.DecidePlacements(now)
	if err != nil {
		return err
	}
	result := offline.NewResult(outcome)
	if !o.format.IsFormat("yaml") {
		if err := o.format.Set("json"); err != nil {
			return err
		}
	}
	_, err = o.format.PrintStructured(out, result)
	return err
}
