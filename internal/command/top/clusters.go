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

func clustersCommand(flags *client.Flags) *cobra.Command {
	o := &options{flags: flags}
	cmd := &cobra.Command{
		Use:     "clusters",
		Aliases: []string{"cluster", "cl", "nodes", "node", "no"},
		Short:   "Show what each cluster uses, what its pods request, and what it has for pods",
		Long: `Show what each cluster uses, what its pods request, and what it has for pods.

On the hub each cluster is a node, so that top nodes is the same. USED is measured by
the cluster's own metrics-server, REQUESTED and HAS are what its agent last reported
of all pods and of the nodes that are ready; percents are of what it has.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.flags.Connect()
			if err != nil {
				return err
			}
			names, err := o.choice.Names(cmd.Context(), c)
			if err != nil {
				return err
			}
			clusters, err := client.List[v1alpha1.Cluster](cmd.Context(), c, client.Clusters, "", metav1.ListOptions{LabelSelector: o.selector})
			if err != nil {
				return err
			}
			used, err := measured(cmd.Context(), c, "nodes", "", metav1.ListOptions{LabelSelector: o.selector}, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			all := clusterUses(clusters, used, names)
			if done, err := o.format.Structured(cmd.OutOrStdout(), all); done {
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

// room of a cluster in one resource; nil where it is not known.
type room struct {
	Used      *resource.Quantity `json:"used,omitempty"`
	Requested *resource.Quantity `json:"requested,omitempty"`
	Has       *resource.Quantity `json:"has,omitempty"`
}

func (r room) plus(o room) room {
	return room{plus(r.Used, o.Used), plus(r.Requested, o.Requested), plus(r.Has, o.Has)}
}

// clusterUse is what a cluster uses and has.
type clusterUse struct {
	Cluster string `json:"cluster"`
	Ready   bool   `json:"ready"`
	CPU     room   `json:"cpu"`
	Memory  room   `json:"memory"`
	// Pods are requested, and had room for; nobody measures them.
	Pods room `json:"pods"`
}

// clusterUses of accepted clusters that are chosen, in their order.
func clusterUses(clusters []v1alpha1.Cluster, used []usage, chosen []string) []clusterUse {
	by := map[string]*usage{}
	for i := range used {
		by[used[i].Name] = &used[i]
	}
	out := []clusterUse{}
	for _, c := range clusters {
		if !c.Spec.Accepted || !kept(chosen, c.Name) {
			continue
		}
		of := func(name corev1.ResourceName) room {
			r := room{Requested: known(c.Status.Resources.Requested, name), Has: known(c.Status.Resources.Allocatable, name)}
			if u := by[c.Name]; u != nil && name != corev1.ResourcePods {
				r.Used = u.of(name)
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

func known(l corev1.ResourceList, name corev1.ResourceName) *resource.Quantity {
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
		table.Row(name, ready,
			cpu(c.CPU.Used), share(c.CPU.Used, c.CPU.Has), cpu(c.CPU.Requested), cpu(c.CPU.Has),
			memory(c.Memory.Used), share(c.Memory.Used, c.Memory.Has), memory(c.Memory.Requested), memory(c.Memory.Has),
			count(c.Pods.Requested), count(c.Pods.Has))
	}
	var sum clusterUse
	ready, silent := 0, 0
	// Shares are of the clusters that were measured.
	var measured clusterUse
	for _, c := range all {
		row(c.Cluster, output.YesNo(c.Ready), c)
		sum.CPU, sum.Memory, sum.Pods = sum.CPU.plus(c.CPU), sum.Memory.plus(c.Memory), sum.Pods.plus(c.Pods)
		if c.Ready {
			ready++
		}
		if c.CPU.Used == nil {
			silent++
			continue
		}
		measured.CPU, measured.Memory = measured.CPU.plus(c.CPU), measured.Memory.plus(c.Memory)
	}
	table.Row("TOTAL", fmt.Sprintf("%d/%d", ready, len(all)),
		cpu(sum.CPU.Used), share(measured.CPU.Used, measured.CPU.Has), cpu(sum.CPU.Requested), cpu(sum.CPU.Has),
		memory(sum.Memory.Used), share(measured.Memory.Used, measured.Memory.Has), memory(sum.Memory.Requested), memory(sum.Memory.Has),
		count(sum.Pods.Requested), count(sum.Pods.Has))
	if err := table.Flush(); err != nil || silent == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "clusters without metrics, of which what they use is in no sum: %d of %d\n", silent, len(all))
	return err
}

func count(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return strconv.FormatInt(q.Value(), 10)
}
