// Package migrate is the command `atoll migrate`, which moves what a policy places from one cluster to another.
//
// Contract: a move is an edit of the policy that places the Bundle, or of the Placement that the policy refers to, and nothing
// else. Without --yes nothing is written, and the hub answers with the functions that act. With --yes
// exactly that edit is written, to the version that it was made from.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/plan"
	"atoll.dev/atoll/internal/preview"
)

type migrateOptions struct {
	flags    *client.ConnectionFlags
	format   output.Format
	from, to string
	yes, all bool
	others   bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &migrateOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "migrate KIND/NAME --from CLUSTER --to CLUSTER [-n NAMESPACE] [--yes]",
		Short: "Move what a policy places from one cluster to another, with a preview first",
		Long: `Move what a policy places from one cluster to another, with a preview first.

KIND is bundle or clusterbundle, or the kind of a template, which stands for its Bundle. The
move is an edit of its policy, or of the Placement that the policy refers to. Where it names the old cluster, the new one is named in its
place, also in static weights. Elsewhere the old cluster is excluded. A placement that chooses
some of its clusters prefers the new one.

The replacement starts first, or the old copy ends first, as moveOrder of the policy or the
kinds of the objects ask for. Without --yes the edit and its plan are shown, and nothing is
written; the exit code is 2. With --yes the edit is written, if it brings the Bundle to the
new cluster. If it moves other Bundles as well, --with-others is needed.`,
		Example: `  atoll migrate deployment/web -n shop --from oslo-1 --to lima-1
  atoll migrate deployment/web -n shop --from oslo-1 --to lima-1 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), cmd.OutOrStdout(), args[0]) },
	}
	flags.AddNamespace(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "cluster that the Bundle leaves")
	f.StringVar(&o.to, "to", "", "cluster that gets the Bundle")
	f.BoolVarP(&o.yes, "yes", "y", false, "do it")
	f.BoolVar(&o.others, "with-others", false, "with --yes: also if other Bundles of the same policy or Placement move")
	f.BoolVar(&o.all, "all", false, "leave nothing of a large fleet to a count")
	_ = cmd.MarkFlagRequired("from") // it fails for an unknown flag alone
	_ = cmd.MarkFlagRequired("to")
	o.format.AddTo(f, "json", "yaml")
	return cmd
}

// answer is what the command prints for programs.
type answer struct {
	// Object that is edited, such as "PropagationPolicy shop/web", and the merge patch of the edit.
	Object string          `json:"object"`
	Edit   json.RawMessage `json:"edit"`
	Plan   preview.Plan    `json:"plan"`
	Done   bool            `json:"done,omitempty"`
}

func (o *migrateOptions) run(ctx context.Context, out io.Writer, argument string) error {
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	bundle, e, err := o.findMove(ctx, c, argument)
	if err != nil {
		return err
	}
	a := answer{Object: e.describe(), Edit: e.patch}
	if a.Plan, err = e.planEdit(ctx, c); err != nil {
		return err
	}
	refused := o.checkPlan(bundle, a.Plan)
	if o.yes && refused == nil {
		if err := e.write(ctx, c, nil); err != nil {
			return err
		}
		a.Done = true
	}
	if err := o.printAnswer(out, argument, a); err != nil {
		return err
	}
	if refused == nil && !a.Done {
		return plan.ErrChanges
	}
	return refused
}

// findMove returns the Bundle and the edit that moves it.
func (o *migrateOptions) findMove(ctx context.Context, c *client.Connection, argument string) (*v1alpha1.Bundle, *edit, error) {
	if o.from == o.to {
		return nil, nil, fmt.Errorf("--from and --to are both %s: name two clusters", o.to)
	}
	// For a team that may not read Clusters, the plan shows whether the Bundle comes there.
	if _, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", o.to); err != nil && !apierrors.IsForbidden(err) {
		return nil, nil, err
	}
	bundle, _, err := client.FindBundle(ctx, c, argument)
	if err != nil {
		return nil, nil, err
	}
	e, err := findEdit(ctx, c, bundle, o.from, o.to)
	return bundle, e, err
}

// checkPlan returns why the edit is not written: it does not move the Bundle to the new cluster, or moves others.
func (o *migrateOptions) checkPlan(bundle *v1alpha1.Bundle, p preview.Plan) error {
	own, others := splitPlan(bundle, p)
	switch {
	case len(p.Refused) > 0:
		return fmt.Errorf("nothing is written: the hub refuses the edit: %s", p.Refused[0].Why)
	case own.NoFit || !hasRow(own, preview.ChangeRemoved, o.from):
		return fmt.Errorf("nothing is written: by the plan, the edit does not move %s from %s; `atoll explain bundle/%s` names where it is, and why", bundle.Name, o.from, bundle.Name)
	case !arrivesAt(own, o.to):
		return fmt.Errorf("nothing is written: by the plan, %s leaves %s and does not come to %s, or is there already; `atoll explain bundle/%s --cluster %s` names the reason", bundle.Name, o.from, o.to, bundle.Name, o.to)
	case o.yes && !o.others && others > 0:
		return fmt.Errorf("nothing is written: %d other Bundles change as well; --with-others writes the edit, or give this one a policy of its own", others)
	}
	return nil
}

// splitPlan returns the plan of the Bundle, and how many others change.
func splitPlan(bundle *v1alpha1.Bundle, p preview.Plan) (own preview.BundlePlan, others int) {
	others = p.Hidden + p.More
	for _, b := range p.Bundles {
		if b.Namespace == bundle.Namespace && b.Name == bundle.Name {
			own = b
		} else if len(b.Rows) > 0 {
			others++
		}
	}
	return own, others
}

// hasRow reports whether the row of a cluster has the change.
func hasRow(b preview.BundlePlan, change preview.ChangeKind, cluster string) bool {
	return slices.ContainsFunc(b.Rows, func(r preview.RowGroup) bool {
		return r.Change == change && slices.Contains(r.Clusters, cluster)
	})
}

// arrivesAt reports whether the Bundle comes to the cluster, has a row there that changes, or waits there for the end of the old
// copy.
func arrivesAt(b preview.BundlePlan, cluster string) bool {
	return hasRow(b, preview.ChangeAdded, cluster) || hasRow(b, preview.ChangeChanged, cluster) ||
		slices.ContainsFunc(b.OldCopies, func(w preview.OldCopyWait) bool { return slices.Contains(w.Clusters, cluster) })
}

func (o *migrateOptions) printAnswer(out io.Writer, argument string, a answer) error {
	if done, err := o.format.PrintStructured(out, a); done || err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "Edit of %s:\n  %s\n\n%s", a.Object, a.Edit, a.Plan.FormatText(o.all)); err != nil || !a.Done {
		return err
	}
	_, err := fmt.Fprintf(out, "The edit is written; follow it with: atoll explain %s\n", argument)
	return err
}

// write writes the edit to the version that it was made from. dryRun is nil, or makes the hub store nothing.
func (e *edit) write(ctx context.Context, c *client.Connection, dryRun []string) error {
	written, err := c.Dynamic.Resource(e.resource).Namespace(e.namespace).Patch(ctx, e.name, types.MergePatchType, e.patchAtVersion, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager, DryRun: dryRun})
	if apierrors.IsConflict(err) {
		return errors.New("the object was written by others at the same time; run the command again")
	}
	if err != nil {
		return c.ExplainError(err)
	}
	e.written = written
	return nil
}

// planEdit returns the plan of the edit.
func (e *edit) planEdit(ctx context.Context, c *client.Connection) (preview.Plan, error) {
	if err := e.write(ctx, c, []string{metav1.DryRunAll}); err != nil {
		return preview.Plan{}, err
	}
	var request plan.Request
	request.AddWritten(e.written)
	return plan.AskHub(ctx, c, request)
}
