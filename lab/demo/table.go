package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clustermatch"
)

// printTable prints for each cluster its workloads, their health, and the reason of the
// placement.
func (w *demoClusters) printTable(ctx context.Context, out io.Writer, members []string) error {
	u, err := w.dynamic["hub"].Resource(v1alpha1.GroupVersion.WithResource("propagationpolicies")).Namespace(shopNamespace).Get(ctx, "shop", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	policy, err := convertTo[v1alpha1.PropagationPolicy](u)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\n  CLUSTER\tREGION\tRUNS\tHEALTHY\tIMAGES FROM\tWHY")
	for _, m := range members {
		cluster, err := w.getCluster(ctx, m)
		if err != nil {
			return err
		}
		fits, why := clustermatch.MatchesAffinity(policy.Spec.Placement.ClusterAffinity, atoll.ClusterViewOf(cluster))
		if fits {
			why = "policy shop: " + clusterChoiceReason(policy)
		}
		if err := w.printClusterWorkloads(ctx, table, cluster, why); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out)
	return err
}

func clusterChoiceReason(p *v1alpha1.PropagationPolicy) string {
	if a := p.Spec.Placement.ClusterAffinity; a != nil && len(a.ClusterNames) > 0 {
		return "named in clusterNames"
	}
	return "every cluster"
}

// printClusterWorkloads prints a line per workload, or one line for none.
func (w *demoClusters) printClusterWorkloads(ctx context.Context, table io.Writer, cluster *v1alpha1.Cluster, why string) error {
	apps := w.kube[cluster.Name].AppsV1()
	list, err := apps.Deployments(shopNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", cluster.Name, err)
	}
	sets, err := apps.StatefulSets(shopNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", cluster.Name, err)
	}
	name, region := cluster.Name, cluster.Spec.Region
	line := func(kind, workload string, ready, want int32, image string) {
		registry, _, _ := strings.Cut(image, "/")
		fmt.Fprintf(table, "  %s\t%s\t%s %s\t%d/%d\t%s\t%s\n", name, region, kind, workload, ready, want, registry, why)
		name, region, why = "", "", ""
	}
	for _, d := range list.Items {
		line("Deployment", d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image)
	}
	for _, s := range sets.Items {
		line("StatefulSet", s.Name, s.Status.ReadyReplicas, *s.Spec.Replicas, s.Spec.Template.Spec.Containers[0].Image)
	}
	if len(list.Items)+len(sets.Items) == 0 {
		fmt.Fprintf(table, "  %s\t%s\t-\t-\t-\t%s\n", name, region, why)
	}
	return nil
}
