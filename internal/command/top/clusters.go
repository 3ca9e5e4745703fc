package top

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

func clustersCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &topOptions{flags: flags}
	cmd := &cobra.Command{
		Use:     "clusters",
		Aliases: []string{"cluster", "cl", "clu", "nodes", "node", "no"},
		Short:   "Show what each cluster uses, what its pods request, and what it has for pods",
		Long: `Show what each cluster uses, what its pods request, and what it has for pods.

On the hub each cluster is a node, so that top nodes is the same. USED is measured by
the cluster's own metrics-server, REQUESTED and HAS are what its agent last reported
of all pods and of the nodes that are ready; percents are of what it has.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			names, err := o.choice.ChosenNames(cmd.Context(), c)
			if err != nil {
				return err
			}
			clusters, err := client.List[v1alpha1.Cluster](cmd.Context(), c, client.Clusters, "", metav1.ListOptions{LabelSelector: o.selector})
			if err != nil {
				return err
			}
			used, err := listUsage(cmd.Context(), c, "nodes", "", metav1.ListOptions{LabelSelector: o.selector}, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			all := clusterUses(clusters, used, names)
			if done, err := o.format.PrintStructured(cmd.OutOrStdout(), all); done {
				return err
			}
			return printClusters(cmd.OutOrStdout(), all)
		},
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label selector of clusters, such as env=prod")
	o.choice.AddTo(cmd.Flags())
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

// resourceTotals are the totals of a cluster in one resource; nil where it is not known.
type resourceTotals struct {
	Used      *resource.Quantity `json:"used,omitempty"`
	Requested *resource.Quantity `json:"requested,omitempty"`
	Has       *resource.Quantity `json:"has,omitempty"`
}

func (r resourceTotals) addTotals(o resourceTotals) resourceTotals {
	return resourceTotals{addQuantities(r.Used, o.Used), addQuantities(r.Requested, o.Requested), addQuantities(r.Has, o.Has)}
}

// clusterUse is what a cluster uses and has.
type clusterUse struct {
	Cluster string         `json:"cluster"`
	Ready   bool           `json:"ready"`
	CPU     resourceTotals `json:"cpu"`
	Memory  resourceTotals `json:"memory"`
	// Pods are counted by requests and capacity; they have no measurement.
	Pods resourceTotals `json:"pods"`
}

// clusterUses returns the usage of accepted clusters that are chosen, in their order.
func clusterUses(clusters []v1alpha1.Cluster, used []resourceUsage, chosen []string) []clusterUse {
	by := map[string]*resourceUsage{}
	for i := range used {
		by[used[i].Name] = &used[i]
	}
	out := []clusterUse{}
	for _, c := range clusters {
		if !c.Spec.Accepted || !isChosen(chosen, c.Name) {
			continue
		}
		of := func(name corev1.ResourceName) resourceTotals {
			r := resourceTotals{Requested: knownQuantity(c.Status.Resources.Requested, name), Has: knownQuantity(c.Status.Resources.Allocatable, name)}
			if u := by[c.Name]; u != nil && name != corev1.ResourcePods {
				r.Used = u.usageOf(name)
			}
			return r
		}
		out = append(out, clusterUse{
			Cluster: c.Name, Ready: meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterReady),
			CPU: of(corev1.ResourceCPU), Memory: of(corev1.ResourceMemory), Pods: of(corev1.ResourcePods),
		})
	}
	return out
}

func knownQuantity(l corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
	if q, ok := l[name]; ok {
		return &q
	}
	return nil
}

func printClusters(out io.Writer, all []clusterUse) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no clusters that are accepted and chosen")
		return err
	}
	table := output.NewTable(out, "CLUSTER", "READY", "CPU USED", "CPU%", "REQUESTED", "HAS", "MEMORY USED", "MEMORY%", "REQUESTED", "HAS", "PODS", "HAS")
	row := func(name, ready string, c clusterUse) {
		table.AddRow(name, ready,
			formatCPU(c.CPU.Used), formatPercent(c.CPU.Used, c.CPU.Has), formatCPU(c.CPU.Requested), formatCPU(c.CPU.Has),
			formatMemory(c.Memory.Used), formatPercent(c.Memory.Used, c.Memory.Has), formatMemory(c.Memory.Requested), formatMemory(c.Memory.Has),
			formatCount(c.Pods.Requested), formatCount(c.Pods.Has))
	}
	var sum clusterUse
	ready, silent := 0, 0
	// Shares are of the clusters that were measured.
	var measured clusterUse
	for _, c := range all {
		row(c.Cluster, output.YesNo(c.Ready), c)
		sum.CPU, sum.Memory, sum.Pods = sum.CPU.addTotals(c.CPU), sum.Memory.addTotals(c.Memory), sum.Pods.addTotals(c.Pods)
		if c.Ready {
			ready++
		}
		if c.CPU.Used == nil {
			silent++
			continue
		}
		measured.CPU, measured.Memory = measured.CPU.addTotals(c.CPU), measured.Memory.addTotals(c.Memory)
	}
	table.AddRow("TOTAL", fmt.Sprintf("%d/%d", ready, len(all)),
		formatCPU(sum.CPU.Used), formatPercent(measured.CPU.Used, measured.CPU.Has), formatCPU(sum.CPU.Requested), formatCPU(sum.CPU.Has),
		formatMemory(sum.Memory.Used), formatPercent(measured.Memory.Used, measured.Memory.Has), formatMemory(sum.Memory.Requested), formatMemory(sum.Memory.Has),
		formatCount(sum.Pods.Requested), formatCount(sum.Pods.Has))
	if err := table.Flush(); err != nil || silent == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "clusters without metrics, of which what they use is in no sum: %d of %d\n", silent, len(all))
	return err
}

func formatCount(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return strconv.FormatInt(q.Value(), 10)
}
