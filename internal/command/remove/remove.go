// Package remove is the command `atoll remove`, which takes a cluster out of the fleet.
//
// Contract: it states the removal on exactly the Cluster that it looked at (by UID), after it read
// the hub's records of its content, and then only follows: the hub goes on, and the command can run
// again. Without --clean, which has to be
// confirmed, nothing is deleted in the member; with --yes exactly that is confirmed which was
// listed: the removal is stated, and held, and the hub's list of what it would remove is confirmed
// where the same is listed after that.
package remove

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

type removeOptions struct {
	flags   *client.ConnectionFlags
	format  output.Format
	orphan  bool
	clean   bool
	force   bool
	cancel  bool
	dryRun  bool
	yes     bool
	noWait  bool
	timeout time.Duration
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &removeOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "remove CLUSTER",
		Short: "Take a cluster out of the fleet, and follow how far that is",
		Long: `Take a cluster out of the fleet, and follow the removal.

Nothing new is placed there from then on. Its workloads go once their replacements in
other clusters are healthy, or before those start by moveOrder; then the agent releases the member, and the hub deletes the
Cluster. With --orphan all that Atoll applied stays where it is, without Atoll's
labels and ownership; with --clean it is removed, except what was there before Atoll
and what policies orphan. The command waits; interrupted, it can be run again, and the
hub goes on without it. --cancel takes the removal back.

A cluster that does not come back is given up by --force: it keeps what it has. Its
content, by the hub's records, is listed, and written to the ConfigMap
removed-CLUSTER in the hub's namespace atoll-system. Without --orphan and --clean a
disconnected cluster is given up so.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.orphan, "orphan", false, "leave what Atoll applied where it is, and release it")
	f.BoolVar(&o.clean, "clean", false, "remove what Atoll applied")
	f.BoolVar(&o.force, "force", false, "give the cluster up at once, also one that is connected; nothing is removed there")
	f.BoolVar(&o.cancel, "cancel", false, "take back a removal that has not come to its end")
	f.BoolVar(&o.dryRun, "dry-run", false, "only list what is in the cluster")
	f.BoolVarP(&o.yes, "yes", "y", false, "with --clean: remove what is listed")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for the end")
	f.DurationVar(&o.timeout, "timeout", 0, "how long to wait; 0: until the end")
	cmd.MarkFlagsMutuallyExclusive("orphan", "clean", "cancel")
	cmd.MarkFlagsMutuallyExclusive("force", "cancel")
	o.format.AddTo(f, "json", "yaml")
	return cmd
}

func (o *removeOptions) run(cmd *cobra.Command, name string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	cluster, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", name)
	if err != nil {
		return err
	}
	if o.cancel {
		return o.cancelRemoval(ctx, c, cluster, out)
	}
	want, err := o.wantedRemoval(cluster)
	if err != nil {
		return err
	}
	found, err := clusterContents(ctx, c, cluster)
	if err != nil {
		return err
	}
	structured, err := o.printContents(out, name, want, found)
	if err != nil || o.dryRun {
		return err
	}
	if err := o.requestRemoval(ctx, c, cluster, want, found); err != nil || o.noWait {
		return err
	}
	if structured {
		out = io.Discard
	}
	return o.followRemoval(ctx, c, cluster, *want, out)
}

// printContents lists what a removal takes along or gives up. structured: as JSON or YAML.
func (o *removeOptions) printContents(out io.Writer, name string, want *v1alpha1.ClusterRemoval, found []appliedObject) (structured bool, err error) {
	if !o.dryRun && !o.clean && !want.Force {
		return false, nil
	}
	if structured, err = o.format.PrintStructured(out, found); structured || err != nil {
		return structured, err
	}
	return false, printObjects(out, o.headlineText(name, want, len(found)), found)
}

// requestRemoval states the removal on the hub, and with --yes confirms what is listed.
func (o *removeOptions) requestRemoval(ctx context.Context, c *client.Connection, cluster *v1alpha1.Cluster, want *v1alpha1.ClusterRemoval, found []appliedObject) error {
	if !isUnderWay(cluster, *want) {
		if o.clean && !o.yes && len(found) > 0 {
			return fmt.Errorf("nothing is done yet: run it again with --yes to remove these %d objects from cluster %s", len(found), cluster.Name)
		}
		if err := c.SetClusterRemoval(ctx, cluster, want); err != nil {
			return err
		}
	}
	if o.clean && o.yes && !o.force {
		return o.confirmListed(ctx, c, cluster, found)
	}
	return nil
}

// wantedRemoval returns the removal of the cluster that the flags state.
func (o *removeOptions) wantedRemoval(cluster *v1alpha1.Cluster) (*v1alpha1.ClusterRemoval, error) {
	now := cluster.Spec.Removal
	r := &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan, Force: o.force}
	switch {
	case o.clean:
		r.Mode = v1alpha1.ClusterClean
	case o.orphan:
	case now != nil:
		r.Mode = now.Mode
	case meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ClusterReady) && !o.force && !o.dryRun:
		return nil, fmt.Errorf("cluster %s is connected: choose what is to become of what Atoll applied there: --orphan leaves it, --clean removes it; --force gives the cluster up as it is", cluster.Name)
	default:
		r.Force = true
	}
	return r, nil
}

// isUnderWay reports whether the removal is under way already.
func isUnderWay(cluster *v1alpha1.Cluster, want v1alpha1.ClusterRemoval) bool {
	now := cluster.Spec.Removal
	return now != nil && now.Mode == want.Mode && now.Force == want.Force
}

// planWait is how long the command waits for the hub's list of what it would remove.
const planWait = time.Minute

// confirmListed confirms what was listed, once the hub has published the plan of its removal.
func (o *removeOptions) confirmListed(ctx context.Context, c *client.Connection, cluster *v1alpha1.Cluster, listed []appliedObject) error {
	again := fmt.Sprintf("the removal of cluster %s is stated and held: `atoll confirm cluster/%s` shows what would be removed, `atoll remove %s --cancel` takes it back", cluster.Name, cluster.Name, cluster.Name)
	for end, ticker := time.Now().Add(planWait), time.NewTicker(followEvery); ; {
		now, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", cluster.Name)
		if client.HasLeft(cluster.UID, now, err) {
			return nil // the follower prints it
		}
		if err != nil {
			return err
		}
		if now.Spec.Removal == nil {
			return nil // the follower prints it
		}
		if plan, known := removalPlan(now); known {
			if plan == "" {
				return nil
			}
			if retry, err := confirmPlan(ctx, c, now, listed, again); !retry || time.Now().After(end) {
				return err
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the hub has not listed within %s what would be removed; %s", planWait, again)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("this command was ended before anything was confirmed; %s", again)
		case <-ticker.C:
		}
	}
}

// printProgress prints what a removal waits for if that is not printed yet, and returns the last text.
func printProgress(out io.Writer, now *v1alpha1.Cluster, last string) string {
	text := removalProgressText(now)
	if text == "" || text == last {
		return last
	}
	fmt.Fprintln(out, text)
	return text
}

// removalPlan returns the plan of a cluster's removal, empty where it needs none; false: the hub has
// not computed it yet.
func removalPlan(now *v1alpha1.Cluster) (plan string, known bool) {
	said := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ClusterRemoving)
	if said == nil || said.ObservedGeneration < now.Generation || said.Reason == string(atoll.ReasonPlanUnknown) {
		return "", false
	}
	if now.Status.Removal == nil {
		return "", true
	}
	return now.Status.Removal.Plan, true
}

// confirmPlan confirms the plan if the cluster has exactly what was listed. retry: the hub may accept
// it later.
func confirmPlan(ctx context.Context, c *client.Connection, now *v1alpha1.Cluster, listed []appliedObject, again string) (retry bool, err error) {
	// Read after the plan, so that it has all that the plan is about.
	is, err := clusterContents(ctx, c, now)
	if err != nil {
		return false, err
	}
	if !sameObjects(is, listed) {
		return false, fmt.Errorf("something else than what is listed would be removed by now; %s", again)
	}
	now.Spec.Removal.Confirm = now.Status.Removal.Plan
	err = c.SetClusterRemoval(ctx, now, now.Spec.Removal)
	return apierrors.IsInvalid(err) || apierrors.IsServiceUnavailable(err), err
}

// sameObjects reports whether both are the same objects, whatever was reported of them.
func sameObjects(a, b []appliedObject) bool {
	keys := func(all []appliedObject) (out []string) {
		for _, o := range all {
			out = append(out, o.Group+"/"+o.Kind+"/"+o.Namespace+"/"+o.Name)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return slices.Equal(keys(a), keys(b))
}

func (o *removeOptions) cancelRemoval(ctx context.Context, c *client.Connection, cluster *v1alpha1.Cluster, out io.Writer) error {
	if cluster.Spec.Removal == nil {
		_, err := fmt.Fprintf(out, "cluster %s is not being removed\n", cluster.Name)
		return err
	}
	if err := c.SetClusterRemoval(ctx, cluster, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "cluster %s stays; its placements are decided again\n", cluster.Name)
	return err
}

// headlineText returns the headline over what is in the cluster.
func (o *removeOptions) headlineText(name string, want *v1alpha1.ClusterRemoval, found int) string {
	would := ""
	if o.dryRun {
		would = "would be "
	} else if want.Force {
		would = "is "
	}
	switch {
	case want.Force && found == 0:
		return fmt.Sprintf("cluster %s %sgiven up; nothing is left behind in it", name, would)
	case want.Force:
		return fmt.Sprintf("cluster %s %sgiven up; left behind in it, by the hub's records:", name, would)
	case found == 0:
		return fmt.Sprintf("nothing that Atoll applied is in cluster %s", name)
	case want.Mode == v1alpha1.ClusterClean:
		return fmt.Sprintf("these %d objects are removed from cluster %s:", found, name)
	}
	return fmt.Sprintf("these %d objects stay in cluster %s, and Atoll releases them:", found, name)
}

// followEvery is how often the command reads the progress.
const followEvery = 500 * time.Millisecond

// followRemoval follows the removal to its end, and print what it waits for whenever that is another.
func (o *removeOptions) followRemoval(ctx context.Context, c *client.Connection, cluster *v1alpha1.Cluster, want v1alpha1.ClusterRemoval, out io.Writer) error {
	begin, told := time.Now(), ""
	for ticker := time.NewTicker(followEvery); ; {
		now, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", cluster.Name)
		switch {
		case client.HasLeft(cluster.UID, now, err):
			return o.printFinalAdvice(ctx, c, cluster.Name, want, out)
		case apierrors.IsForbidden(err):
			return err
		case err != nil: // it is read again
		case now.Spec.Removal == nil:
			return fmt.Errorf("the removal of cluster %s was taken back", cluster.Name)
		case !want.Force:
			told = printProgress(out, now, told)
		}
		if o.timeout > 0 && time.Since(begin) > o.timeout {
			return fmt.Errorf("cluster %s has not left the fleet within %s, and the hub goes on: %s", cluster.Name, o.timeout, told)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("this command was ended, and the removal goes on: the same command follows it again, `atoll remove %s --cancel` takes it back", cluster.Name)
		case <-ticker.C:
		}
	}
}

// removalProgressText returns the progress of a removal: what it waits for; empty where the status is of
// the state before the present confirmation.
func removalProgressText(now *v1alpha1.Cluster) string {
	said := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ClusterRemoving)
	if said == nil || said.ObservedGeneration < now.Generation {
		return ""
	}
	return said.Message
}

// printFinalAdvice returns what is left to do for people.
func (o *removeOptions) printFinalAdvice(ctx context.Context, c *client.Connection, name string, want v1alpha1.ClusterRemoval, out io.Writer) error {
	if !want.Force {
		fmt.Fprintf(out, "cluster %s has left the fleet\n", name)
	}
	_, err := client.Get[corev1.ConfigMap](ctx, c, client.ConfigMaps, atoll.SystemNamespace, atoll.RemovedRecordName(name))
	if err == nil {
		fmt.Fprintf(out, "what is left behind is written down on the hub: kubectl get configmap -n %s %s -o yaml\n", atoll.SystemNamespace, atoll.RemovedRecordName(name))
	}
	if !want.Force {
		fmt.Fprintln(out, "to uninstall the agent, in the member: kubectl delete namespace atoll-system; kubectl delete clusterrole,clusterrolebinding atoll-agent")
	}
	return nil
}
