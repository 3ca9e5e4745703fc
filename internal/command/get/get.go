// Package get is the command `atoll get`: tables of clusters, Bundles and rows with
// reasons that do not fit kubectl's columns. It also lists any other kind with its clusters.
//
// Contract: it reads, and makes sense of rows for people; -o json and yaml give what
// was read whole.
package get

import (
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// getOptions are the options that the subcommands share.
type getOptions struct {
	flags  *client.ConnectionFlags
	format output.Format
	all    bool
	// now is read once per command, so that all ages of a table agree.
	now time.Time
	// absent are the clusters that are not there, by name; for rows.
	absent map[string]clusterAbsence
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get clusters|bundles|rows|KIND [NAME...]",
		Short: "Show clusters, Bundles, rows, or any kind with where it runs",
		Long: `Show clusters, Bundles, what each cluster makes of a Bundle (rows), or objects of any
kind that the hub serves, with where they run.

What runs in clusters (pods, replicasets, events and the like) is sorted by cluster.
Of what you wrote, CLUSTERS shows in how many clusters of those that are to have it
it is ready, and STATE is the worst of them. Clusters that are away are named.`,
		Example: `  atoll get clusters
  atoll get pods -A --clusters tokyo-1,oslo-2
  atoll get deployments -n shop -o wide
  atoll get events -n shop --clusters env=prod -w`,
	}
	(&getObjectsOptions{getOptions: getOptions{flags: flags}}).setUpCommand(cmd)
	cmd.AddCommand(newGetClustersCommand(flags), newGetBundlesCommand(flags), newGetRowsCommand(flags))
	return cmd
}

func (o *getOptions) addNamespaceFlags(cmd *cobra.Command) {
	o.flags.AddNamespace(cmd.Flags())
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

func (o *getOptions) connectHub() (*client.Connection, error) {
	o.now = time.Now()
	c, err := o.flags.LoadClusterConnection()
	if err == nil && o.all {
		c.Namespace = ""
	}
	return c, err
}

// newListObject is what -o json prints of several objects.
func newListObject[T any](items []T) map[string]any {
	if items == nil {
		items = []T{}
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}
