package top

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

func podsCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &topOptions{flags: flags}
	cmd := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod", "po"},
		Short:   "Show what each pod of placed workloads uses, and what they use in each cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			if o.all {
				c.Namespace = ""
			}
			names, err := o.choice.ChosenNames(cmd.Context(), c)
			if err != nil {
				return err
			}
			used, err := listUsage(cmd.Context(), c, "pods", c.Namespace, metav1.ListOptions{LabelSelector: client.AddClustersToSelector(o.selector, names)}, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.printPods(cmd.OutOrStdout(), podUses(used))
		},
	}
	o.flags.AddNamespace(cmd.Flags())
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "all namespaces")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label selector of pods, such as app=web")
	o.choice.AddTo(cmd.Flags())
	return cmd
}

// podUse is what a pod uses.
type podUse struct {
	cluster, namespace, name string
	cpu, memory              *resource.Quantity
}

// podUses returns the usage by cluster, namespace and name.
func podUses(used []resourceUsage) []podUse {
	out := make([]podUse, len(used))
	for i := range used {
		u := &used[i]
		out[i] = podUse{cluster: u.Labels[atoll.LabelCluster], namespace: u.Namespace, name: u.Name, cpu: u.usageOf(corev1.ResourceCPU), memory: u.usageOf(corev1.ResourceMemory)}
	}
	slices.SortFunc(out, comparePodPlaces)
	return out
}

func (o *topOptions) printPods(out io.Writer, all []podUse) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "no pods that were measured; atoll get pods shows those that run")
		return err
	}
	table := output.NewTable(out, "CLUSTER", "NAMESPACE", "NAME", "CPU", "MEMORY")
	sums := output.NewTable(out, "CLUSTER", "PODS", "CPU", "MEMORY")
	var of, total podUse
	pods := 0
	for i, p := range all {
		table.AddRow(p.cluster, p.namespace, p.name, formatCPU(p.cpu), formatMemory(p.memory))
		of.cpu, of.memory, pods = addQuantities(of.cpu, p.cpu), addQuantities(of.memory, p.memory), pods+1
		total.cpu, total.memory = addQuantities(total.cpu, p.cpu), addQuantities(total.memory, p.memory)
		if i+1 == len(all) || all[i+1].cluster != p.cluster {
			sums.AddRow(p.cluster, strconv.Itoa(pods), formatCPU(of.cpu), formatMemory(of.memory))
			of, pods = podUse{}, 0
		}
	}
	sums.AddRow("TOTAL", strconv.Itoa(len(all)), formatCPU(total.cpu), formatMemory(total.memory))
	if err := table.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return sums.Flush()
}
