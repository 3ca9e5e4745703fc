// Package confirm is the command `atoll confirm`, which releases a removal that is over its
// budget.
//
// Contract: it releases exactly the given plan, and only one that the Bundle reports; a plan with
// other content has another hash and stays held.
package confirm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:   "confirm KIND/NAME [-n NAMESPACE] --plan HASH",
		Short: "Release a removal that waits for a confirmation",
		Long: `Release a removal that waits because it is larger than its budget, because an object states
removal: Confirm, because it cleans a whole cluster, or because members recorded it and the
hub was restored from before it.

KIND is bundle, clusterbundle or cluster. Without --plan, the command shows what waits and
under which hash. A confirmation is good for exactly that plan: when what would
be removed changes, so does the hash.`,
		Example: `  atoll get bundles -A
  atoll confirm bundle/web -n shop
  atoll confirm bundle/web -n shop --plan 3f9c2a17
  atoll confirm cluster/tokyo-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			o, err := c.ParseObject(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.Resource == client.Clusters {
				return confirmClusterRemoval(cmd, c, o.Name, plan)
			}
			if o.Resource != client.Bundles && o.Resource != client.ClusterBundles {
				return fmt.Errorf("removals are confirmed per Bundle, or of a Cluster, and %s is none: `atoll explain %s` names its Bundle", args[0], args[0])
			}
			return confirmBundlePlan(cmd, c, o, plan)
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&plan, "plan", "", "hash of the plan to release")
	return cmd
}

func confirmBundlePlan(cmd *cobra.Command, c *client.Connection, o client.Object, plan string) error {
	ctx := cmd.Context()
	bundle, err := client.Get[v1alpha1.Bundle](ctx, c, o.Resource, o.Namespace, o.Name)
	if err != nil {
		return err
	}
	rows, err := client.ListRows(ctx, c, "", func(r client.Row) bool { return r.Namespace == o.Namespace && r.Bundle == o.Name })
	if err != nil {
		return err
	}
	waiting := client.PendingPlans(bundle.Annotations, rows)
	switch {
	case len(waiting) == 0:
		return fmt.Errorf("%s/%s holds no removal: nothing to confirm", o.Resource.Resource, o.Name)
	case plan == "":
		_, err := fmt.Fprint(cmd.OutOrStdout(), formatPlans(waiting))
		return err
	case waiting[plan].Lines == nil:
		return fmt.Errorf("%s/%s does not wait for plan %s; look at what waits now, and release that if it is meant:\n%s", o.Resource.Resource, o.Name, plan, formatPlans(waiting))
	}
	if err := c.AnswerPlan(ctx, o, bundle.UID, atoll.AnnotationConfirm, plan); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "plan %s is released; follow it with: atoll get rows %s -n %s\n", plan, o.Name, o.Namespace)
	return err
}

// confirmClusterRemoval releases what goes with a cluster that is to be cleaned. The hub refuses a plan
// that is not that of what is there now, and returns which one that is.
func confirmClusterRemoval(cmd *cobra.Command, c *client.Connection, name, plan string) error {
	ctx := cmd.Context()
	cluster, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", name)
	if err != nil {
		return err
	}
	removal, now := cluster.Spec.Removal, ""
	if s := cluster.Status.Removal; s != nil && removal != nil {
		now = s.Plan
	}
	if now == "" {
		return fmt.Errorf("cluster/%s holds no removal, or the hub has not listed yet what would be removed: nothing to confirm", name)
	}
	if plan != "" && plan != now {
		return fmt.Errorf("cluster/%s does not wait for plan %s; `atoll confirm cluster/%s` shows what waits now", name, plan, name)
	}
	if plan == "" {
		return printRemovalPlan(cmd, c, cluster, now)
	}
	removal.Confirm = plan
	if err := c.SetClusterRemoval(ctx, cluster, removal); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "plan %s is released; follow it with: atoll remove %s\n", plan, name)
	return err
}

// printRemovalPlan lists what goes with a cluster by this plan.
func printRemovalPlan(cmd *cobra.Command, c *client.Connection, cluster *v1alpha1.Cluster, plan string) error {
	ctx, uid := cmd.Context(), string(cluster.UID)
	rows, err := client.ListRows(ctx, c, "", func(r client.Row) bool { return r.Spec.UID == uid && atoll.IsCleanable(r.Ref, r.Spec) })
	if err != nil {
		return err
	}
	var lines []string
	for _, r := range rows {
		keys, hidden, err := client.ItemKeys(ctx, c, r.Spec.Revision)
		if err != nil {
			return err
		}
		bundle := strings.TrimPrefix(r.Namespace+"/"+r.Bundle, "/")
		for _, k := range keys {
			if r.Spec.IncludesItem(k) {
				lines = append(lines, fmt.Sprintf("%s: %s", bundle, k))
			}
		}
		if hidden != nil {
			lines = append(lines, bundle+": Secrets whose names you may not read")
		}
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), formatPlans(map[string]client.Plan{plan: {Lines: lines}}))
	return err
}

// formatPlans formats the plans that wait for a confirmation, sorted by hash.
func formatPlans(waiting map[string]client.Plan) string {
	var out strings.Builder
	for _, hash := range slices.Sorted(maps.Keys(waiting)) {
		fmt.Fprintf(&out, "plan %s waits:\n  %s\nrelease it with --plan %s\n", hash, strings.Join(waiting[hash].Lines, "\n  "), hash)
	}
	return out.String()
}
