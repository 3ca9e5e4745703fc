// Package drain is the commands `atoll drain` and `atoll uncordon`, which evacuate a cluster and give it back.
//
// Contract: both write the taints of one Cluster and nothing else, and only of the version that they read. With --dry-run
// nothing is written, and the hub answers with the functions that act. The hub drains on without the command.
package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/plan"
)

type drainOptions struct {
	flags            *client.ConnectionFlags
	format           output.Format
	removeUnreplaced bool
	dryRun, all      bool
	noWait           bool
	timeout          time.Duration
}

// NewCommand makes the command `atoll drain`.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &drainOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "drain CLUSTER [--dry-run]",
		Short: "Move what runs in a cluster to others, replacements first",
		Long: `Move what runs in a cluster to others, replacements first, and follow until all of it has left.

The cluster gets the taint atoll.dev/drain, and nothing new is placed there. A Bundle leaves
when something replaces its copy: another cluster, a later group, or other clusters that
divide its replicas. Removals over the budget wait for their confirmation, and copies that a
disruptionBudget keeps wait until enough other copies are available. Copies that nothing
can replace stay, and are listed. So are Bundles that have a copy in each cluster that fits,
as kubectl drain leaves DaemonSets. "atoll uncordon CLUSTER" gives the cluster back.

--dry-run lists what would leave, to where, and what would stay and why. It exits with 2 when
something would change.

The command exits with 0 when all that can be replaced has left, with 3 when something
cannot leave, with 4 when a person has to confirm, and with 5 after --timeout. The hub goes
on without it, and the same command follows again.`,
		Example: `  atoll drain oslo-1 --dry-run
  atoll drain oslo-1 --timeout 30m
  atoll uncordon oslo-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.removeUnreplaced, "remove-unreplaced", false, "also remove copies that nothing replaces, if another cluster has the Bundle")
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what would leave, and what would stay")
	f.BoolVar(&o.all, "all", false, "with --dry-run: leave nothing to a count")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for the end")
	f.DurationVar(&o.timeout, "timeout", 0, "end after this time; 0: never. The hub drains on")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "no-wait")
	o.format.AddTo(f, "json", "yaml")
	return cmd
}

// NewUncordonCommand makes the command `atoll uncordon`.
func NewUncordonCommand(flags *client.ConnectionFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "uncordon CLUSTER",
		Short: "End a drain or a cordon: the cluster takes work again",
		Long: `End a drain or a cordon: the cluster takes work again.

It removes the taints atoll.dev/drain and node.kubernetes.io/unschedulable, as kubectl
uncordon does. What has left stays where it is; copies that have not left stay.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			before, _, err := editTaints(cmd.Context(), c, args[0], removeDrainTaints, nil)
			if err != nil {
				return err
			}
			text := "takes work again\n"
			if len(removeDrainTaints(before.Spec.Taints)) == len(before.Spec.Taints) {
				text = "is neither drained nor cordoned\n"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s %s", args[0], text)
			return err
		},
	}
}

func (o *drainOptions) run(cmd *cobra.Command, name string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.printPlan(ctx, c, name, out)
	}
	if o.format.String() != "" {
		return fmt.Errorf("--output is for --dry-run; `kubectl get cluster %s -o yaml` has the progress in status.drain", name)
	}
	_, cluster, err := editTaints(ctx, c, name, o.addDrainTaint, nil)
	if err != nil {
		return err
	}
	if o.noWait {
		_, err = fmt.Fprintf(out, "cluster %[1]s is drained; follow it with: atoll drain %[1]s\n", name)
		return err
	}
	f := follower{client: c, name: name, uid: cluster.GetUID(), out: out}
	return f.followUntilEnd(ctx, cluster.GetGeneration(), o.timeout)
}

// addDrainTaint returns the taints with that of the drain.
func (o *drainOptions) addDrainTaint(taints []v1alpha1.Taint) []v1alpha1.Taint {
	want := v1alpha1.Taint{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}
	if o.removeUnreplaced {
		want.Value = v1alpha1.DrainRemoveUnreplaced
	}
	out := slices.Clone(taints)
	if i := slices.IndexFunc(out, v1alpha1.Taint.IsDrain); i >= 0 {
		out[i].Value = want.Value
		return out
	}
	return append(out, want)
}

// removeDrainTaints returns the taints without those of drains and cordons.
func removeDrainTaints(taints []v1alpha1.Taint) []v1alpha1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), v1alpha1.Taint.EndsWithUncordon)
}

// maxTries is how often the taints are written where others write at the same time.
const maxTries = 5

// editTaints writes the taints of a Cluster, if they change. It returns the Cluster before and after.
// dryRun is nil, or makes the hub store nothing.
func editTaints(ctx context.Context, c *client.Connection, name string, edit func([]v1alpha1.Taint) []v1alpha1.Taint, dryRun []string) (before *v1alpha1.Cluster, after *unstructured.Unstructured, err error) {
	clusters := c.Dynamic.Resource(client.Clusters)
	for range maxTries {
		if before, err = client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", name); err != nil {
			return nil, nil, err
		}
		taints := edit(before.Spec.Taints)
		if len(dryRun) == 0 && slices.EqualFunc(taints, before.Spec.Taints, isSameTaint) {
			after, err = clusters.Get(ctx, name, metav1.GetOptions{})
			return before, after, c.ExplainError(err)
		}
		if len(taints) == 0 {
			taints = nil // the list goes, too
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": before.UID, "resourceVersion": before.ResourceVersion}, "spec": map[string]any{"taints": taints},
		})
		if err != nil {
			return nil, nil, err
		}
		after, err = clusters.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager, DryRun: dryRun})
		if err == nil {
			return before, after, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, nil, c.ExplainError(err)
		}
	}
	return nil, nil, fmt.Errorf("cluster %s was written by others %d times; run the command again", name, maxTries)
}

// isSameTaint reports whether both have the same effect on placements.
func isSameTaint(a, b v1alpha1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

// printPlan prints what would leave and what would stay. Its error shows whether something would change.
func (o *drainOptions) printPlan(ctx context.Context, c *client.Connection, name string, out io.Writer) error {
	_, drained, err := editTaints(ctx, c, name, o.addDrainTaint, []string{metav1.DryRunAll})
	if err != nil {
		return err
	}
	var request plan.Request
	request.AddWritten(drained)
	p, err := plan.AskHub(ctx, c, request)
	if err != nil {
		return err
	}
	done, err := o.format.PrintStructured(out, p)
	if !done {
		_, err = io.WriteString(out, p.FormatText(o.all))
	}
	if err == nil && p.Changes {
		return plan.ErrChanges
	}
	return err
}
