// Package confirm is the command `atoll confirm`, which releases a removal that is
// over its budget.
//
// Contract: it releases exactly the plan that it is given, and only one that the
// Bundle asks about; a plan that changed meanwhile has another hash and stays held.
package confirm

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// NewCommand makes the command.
func NewCommand(flags *client.Flags) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:   "confirm KIND/NAME [-n NAMESPACE] --plan HASH",
		Short: "Release a removal that waits because it is larger than its budget",
		Long: `Release a removal that waits because it is larger than its budget.

KIND is bundle or clusterbundle. Without --plan, the command shows what waits and
under which hash. A confirmation is good for exactly that plan: when what would
be removed changes, so does the hash.`,
		Example: `  atoll get bundles -A
  atoll confirm bundle/web -n shop
  atoll confirm bundle/web -n shop --plan 3f9c2a17`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			o, err := c.ParseObject(args[0])
			if err != nil {
				return err
			}
			if o.Resource != client.Bundles && o.Resource != client.ClusterBundles {
				return fmt.Errorf("removals are confirmed per Bundle, and %s is none: `atoll explain %s` names its Bundle", args[0], args[0])
			}
			return confirm(cmd, c, o, plan)
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&plan, "plan", "", "hash of the plan to release")
	return cmd
}

func confirm(cmd *cobra.Command, c *client.Cluster, o client.Object, plan string) error {
	ctx := cmd.Context()
	bundle, err := client.Get[v1alpha1.Bundle](ctx, c, o.Resource, o.Namespace, o.Name)
	if err != nil {
		return err
	}
	rows, err := client.Rows(ctx, c, func(r client.Row) bool { return r.Namespace == o.Namespace && r.Bundle == o.Name })
	if err != nil {
		return err
	}
	waiting := plans(bundle, rows)
	switch {
	case len(waiting) == 0:
		return fmt.Errorf("%s/%s holds no removal: nothing to confirm", o.Resource.Resource, o.Name)
	case plan == "":
		for hash, lines := range waiting {
			fmt.Fprintf(cmd.OutOrStdout(), "plan %s waits:\n  %s\nrelease it with --plan %s\n", hash, strings.Join(lines, "\n  "), hash)
		}
		return nil
	case waiting[plan] == nil:
		return fmt.Errorf("%s/%s does not wait for plan %s; run the command without --plan to see what it waits for", o.Resource.Resource, o.Name, plan)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": bundle.UID, "annotations": map[string]string{atoll.AnnotationConfirm: plan}},
	})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(o.Resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "atoll-cli"})
	if err != nil {
		return c.Explain(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "plan %s is released; follow it with: atoll get rows %s -n %s\n", plan, o.Name, o.Namespace)
	return err
}

// plans that the Bundle's rows wait for, by hash, with a line per row.
func plans(bundle *v1alpha1.Bundle, rows []client.Row) map[string][]string {
	waiting := map[string][]string{}
	for _, r := range rows {
		reason := atoll.ParseRowReason(r.Spec.Reason)
		if reason.Plan == "" || reason.Plan == bundle.Annotations[atoll.AnnotationConfirm] {
			continue
		}
		waiting[reason.Plan] = append(waiting[reason.Plan], strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", r.Cluster, reason.Word, reason.Text), ": "))
	}
	return waiting
}
