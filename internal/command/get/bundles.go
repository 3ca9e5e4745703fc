package get

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

func newGetBundlesCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &getOptions{flags: flags}
	cmd := &cobra.Command{
		Use:     "bundles [NAME...]",
		Aliases: []string{"bundle", "bdl"},
		Short:   "Show what goes together, how far it is, and what it waits for",
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := o.connectHub()
			if err != nil {
				return err
			}
			bundles, err := listBundles(cmd.Context(), c, o.all)
			if err != nil {
				return err
			}
			if bundles, err = selectByName(bundles, names, func(b v1alpha1.Bundle) string { return b.Name }); err != nil {
				return err
			}
			if done, err := o.format.PrintStructured(cmd.OutOrStdout(), newListObject(bundles)); done {
				return err
			}
			return o.printBundles(cmd.OutOrStdout(), bundles, c.Namespace)
		},
	}
	o.addNamespaceFlags(cmd)
	o.format.AddTo(cmd.Flags(), "json", "yaml", "wide")
	return cmd
}

// listBundles lists the Bundles of the namespace; of all namespaces with those that are in none,
// ClusterBundles, in the same shape.
func listBundles(ctx context.Context, c *client.Connection, all bool) ([]v1alpha1.Bundle, error) {
	bundles, err := client.List[v1alpha1.Bundle](ctx, c, client.Bundles, c.Namespace, metav1.ListOptions{})
	if err != nil || !all {
		return bundles, err
	}
	wide, err := client.List[v1alpha1.Bundle](ctx, c, client.ClusterBundles, "", metav1.ListOptions{})
	return append(bundles, wide...), err
}

func (o *getOptions) printBundles(out io.Writer, bundles []v1alpha1.Bundle, namespace string) error {
	if len(bundles) == 0 {
		_, err := fmt.Fprintln(out, withNamespaceText("no Bundles", namespace)+"; a PropagationPolicy, or the annotation atoll.dev/clusters on an object, makes one")
		return err
	}
	headings := []string{"NAMESPACE", "NAME", "SOURCE", "ITEMS", "CLUSTERS", "AGE", "WAITS FOR"}
	wide := o.format.IsFormat("wide")
	if wide {
		headings = append(headings, "UPDATED", "AWAY", "REMOVING", "REPLICAS", "REVISION")
	}
	table := output.NewTable(out, headings...)
	for _, b := range bundles {
		s := b.Status
		cells := []string{
			b.Namespace, b.Name, b.Spec.Source.Kind + "/" + b.Spec.Source.Name, strconv.Itoa(int(s.Items)),
			fmt.Sprintf("%d/%d", s.Clusters.Ready, s.Clusters.Desired), output.FormatAge(o.now, b.CreationTimestamp.Time), bundleWaitText(b),
		}
		if wide {
			cells = append(cells, strconv.Itoa(int(s.Clusters.Updated)), strconv.Itoa(int(s.Clusters.Away)), strconv.Itoa(int(s.Clusters.Removing)),
				fmt.Sprintf("%d/%d", s.ReadyReplicas, s.Replicas), s.Revision)
		}
		table.AddRow(cells...)
	}
	return table.Flush()
}

// bundleWaitText is the Bundle's own text of what it waits for, or its first condition that is
// not as it should be.
func bundleWaitText(b v1alpha1.Bundle) string {
	if b.Status.WaitsFor != "" {
		return b.Status.WaitsFor
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleRemovalHeld); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleScheduled); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	if n := b.Status.Clusters.Away; n > 0 && b.Status.Clusters.Ready < b.Status.Clusters.Desired {
		return fmt.Sprintf("disconnected clusters: %d; nothing waits for them", n)
	}
	return ""
}

func withNamespaceText(what, namespace string) string {
	if namespace == "" {
		return what
	}
	return what + " in namespace " + namespace
}
