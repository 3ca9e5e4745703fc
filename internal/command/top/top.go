// Package top is the command `atoll top`: what clusters and pods use, beside the room that
// there is, and summed over all.
//
// Contract: what is used comes from the members' own metrics-servers by way of the hub, which
// names those that have none, in warnings that the client prints; there, and where nothing is
// known, the table has "-" and sums are of what is known. Room is what Clusters report.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// metricsGroup is what metrics-server serves, and the hub for all members.
var metricsGroup = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

type topOptions struct {
	flags    *client.ConnectionFlags
	choice   client.ClusterChoice
	format   output.Format
	selector string
	all      bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top clusters|nodes|pods",
		Short: "Show what clusters and pods use, and the room that there is",
	}
	cmd.AddCommand(clustersCommand(flags), podsCommand(flags))
	return cmd
}

// resourceUsage is the usage of a cluster or pod, as metrics.k8s.io has it.
type resourceUsage struct {
	metav1.ObjectMeta `json:"metadata"`
	// Usage of a node.
	Usage corev1.ResourceList `json:"usage"`
	// Containers of a pod.
	Containers []struct {
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// usageOf returns the usage of a resource, all containers together; nil where it was not measured.
func (u *resourceUsage) usageOf(name corev1.ResourceName) *resource.Quantity {
	if q, ok := u.Usage[name]; ok {
		return &q
	}
	var sum *resource.Quantity
	for _, c := range u.Containers {
		if q, ok := c.Usage[name]; ok {
			sum = addQuantities(sum, &q)
		}
	}
	return sum
}

// addQuantities adds what is known; nil is not known.
func addQuantities(a, b *resource.Quantity) *resource.Quantity {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		sum := b.DeepCopy()
		return &sum
	case b == nil:
		return a
	}
	sum := a.DeepCopy()
	sum.Add(*b)
	return &sum
}

// listUsage lists what is used. A hub that serves no metrics returns none, with a warning.
func listUsage(ctx context.Context, c *client.Connection, what, namespace string, o metav1.ListOptions, notes io.Writer) ([]resourceUsage, error) {
	all, err := client.List[resourceUsage](ctx, c, metricsGroup.WithResource(what), namespace, o)
	if apierrors.IsNotFound(err) {
		fmt.Fprintf(notes, "%s serves no metrics.k8s.io: what is used is not known\n", c.Config.Host)
		return nil, nil
	}
	return all, err
}

// formatCPU formats CPU in thousandths, as kubectl writes it; "" where it is not known.
func formatCPU(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf("%dm", q.MilliValue())
}

// formatMemory formats memory in MiB, as kubectl writes it; "" where it is not known.
func formatMemory(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf("%dMi", q.Value()>>20)
}

// formatPercent formats a share in whole percents, the rest left out as kubectl does; "" where either is not known.
func formatPercent(part, whole *resource.Quantity) string {
	if part == nil || whole == nil || whole.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d%%", int64(100*part.AsApproximateFloat64()/whole.AsApproximateFloat64()))
}

// isChosen reports whether a cluster is chosen.
func isChosen(chosen []string, cluster string) bool {
	return chosen == nil || slices.Contains(chosen, cluster)
}

// comparePodPlaces is the order of what is in clusters.
func comparePodPlaces(a, b podUse) int {
	return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}
