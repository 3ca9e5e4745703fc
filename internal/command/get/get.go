// Package get is the command `atoll get`, tables of clusters, Bundles and rows with
// the reasons that kubectl's columns have no room for.
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

// options that the subcommands share.
type options struct {
	flags  *client.Flags
	format output.Format
	all    bool
	// now is read once per command, so that all ages of a table agree.
	now time.Time
	// absent are the clusters that are not there, by name; for rows.
	absent map[string]absence
}

// NewCommand makes the command.
func NewCommand(flags *client.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get clusters|bundles|rows",
		Short: "Show clusters, Bundles, or what each cluster makes of a Bundle",
	}
	cmd.AddCommand(clustersCommand(flags), bundlesCommand(flags), rowsCommand(flags))
	return cmd
}

func (o *options) addNamespaces(cmd *cobra.Command) {
	o.flags.AddNamespace(cmd.Flags())
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces, and what is in none")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

func (o *options) connect() (*client.Cluster, error) {
	o.now = time.Now()
	c, err := o.flags.Connect()
	if err == nil && o.all {
		c.Namespace = ""
	}
	return c, err
}

// list is what -o json prints of several objects.
func list[T any](items []T) map[string]any {
	if items == nil {
		items = []T{}
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}
