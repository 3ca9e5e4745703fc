// Package plan is the command `atoll plan`: the changes if files were applied or deleted.
//
// Contract: nothing is written. Every object is offered to the hub of the kubeconfig as a dry
// run, as the user and as kubectl would apply it. A refusal has the hub's words. The hub then
// answers with the functions that act. With --offline, and without a kubeconfig, the plan is
// that of the files alone, as `atoll schedule` decides.
package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/files"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/preview/offline"
)

// ErrChanges is the error of a plan that changes something, or of which something is
// refused. It is no failure, and has its own exit code.
var ErrChanges = errors.New("something would change")

type planOptions struct {
	flags  *client.ConnectionFlags
	files  files.FileFlags
	delete files.FileFlags
	format output.Format
	// offline: no hub is called. state is "live" to require a hub, or empty.
	offline bool
	state   string
	all     bool
	// notes on the objects of the files.
	notes []preview.PolicyNote
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &planOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "plan -f FILE|DIR... [--offline]",
		Short: "Show what would change in which cluster, before anything is written",
		Long: `Show what would change in which cluster, before anything is written.

The files hold templates, policies, overrides, Placements, Clusters, ClusterSets and
their bindings, ClusterScores, ResourceInterpreters and HubSettings as they would be. They
are laid over what the hub has: each is offered to the hub as a dry run, so that what would
be refused is reported, and the hub answers what would come of the rest, with the functions
that act: rows added (+), removed (-) and changed (~), replicas and fields in
each cluster, clusters that Placements would choose, and removals that would wait for a
confirmation. It is planned as if every cluster that can be reached followed its orders
and were healthy with it. You see the objects that you may get, and only of objects that you
may write. Values of Secrets are never shown.

--offline calls no hub: the plan is that of the files alone, over nothing. So it is without
a kubeconfig, and the command prints this.

--delete names objects that would be deleted, in files as for -f; an object in -f that
has a metadata.deletionTimestamp counts as deleted too.

The exit code is 0 if nothing would change, 2 if something would or is refused, and 1 if
the plan could not be made.`,
		Example: `  atoll plan -f shop/
  atoll plan -f policy.yaml -o json
  helm template shop ./chart | atoll plan -f -
  atoll plan --delete old.yaml
  atoll plan -f fleet/ -R --offline`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.AddNamespace(cmd.Flags())
	o.files.AddTo(cmd.Flags())
	o.delete.AddAs(cmd.Flags(), "delete", "files or directories of objects that would be deleted; may be given more than once")
	cmd.Flags().BoolVar(&o.offline, "offline", false, "call no hub: plan the files alone, over nothing")
	cmd.Flags().StringVar(&o.state, "state", "", "live: fail without a hub")
	_ = cmd.Flags().MarkHidden("state") // it fails for an unknown flag alone
	cmd.MarkFlagsMutuallyExclusive("offline", "state")
	cmd.Flags().BoolVar(&o.all, "all", false, "leave nothing of a large fleet to a count")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *planOptions) run(ctx context.Context, in io.Reader, out, notices io.Writer) error {
	if o.state != "" && o.state != "live" {
		return fmt.Errorf("--state %s: it is live, or left out", o.state)
	}
	objects, deleted, err := o.readObjects(ctx, in)
	if err != nil {
		return err
	}
	o.notes = preview.ListKarmadaNotes(objects)
	hub, err := o.connectHubUnlessOffline()
	if err != nil {
		return err
	}
	if hub != nil {
		err := o.printHubPlan(ctx, out, hub, objects, deleted)
		if err != nil && !errors.Is(err, ErrChanges) && len(deleted) == 0 {
			return fmt.Errorf("%w; --offline plans the files alone", err)
		}
		return err
	}
	return o.printOfflinePlan(out, notices, objects, deleted)
}

// printOfflinePlan is the plan without a hub.
func (o *planOptions) printOfflinePlan(out, notices io.Writer, objects, deleted []*unstructured.Unstructured) error {
	if len(deleted) > 0 {
		return errors.New("what would be deleted is planned over what a hub has: name one with --kubeconfig or $KUBECONFIG, without --offline")
	}
	if !o.offline {
		if _, err := fmt.Fprintln(notices, "No kubeconfig: the plan is that of the files alone. Name a hub with --kubeconfig or $KUBECONFIG, or add --offline."); err != nil {
			return err
		}
	}
	p, err := o.planOffline(objects)
	if err != nil {
		return err
	}
	return o.printPlan(out, p)
}

// connectHubUnlessOffline returns the hub to plan over; nil: the files alone are planned.
func (o *planOptions) connectHubUnlessOffline() (*client.Connection, error) {
	if o.offline {
		return nil, nil
	}
	hub, err := o.flags.LoadClusterConnection()
	if errors.Is(err, client.ErrNoKubeconfig) && o.state == "" && !o.flags.NamesCluster() {
		return nil, nil
	}
	return hub, err
}

func (o *planOptions) readObjects(ctx context.Context, in io.Reader) (objects, deleted []*unstructured.Unstructured, err error) {
	if !o.delete.HasNames() || o.files.HasNames() {
		if objects, err = o.files.Read(ctx, in); err != nil {
			return nil, nil, err
		}
	}
	if o.delete.HasNames() {
		if deleted, err = o.delete.Read(ctx, in); err != nil {
			return nil, nil, err
		}
	}
	kept := objects[:0]
	for _, u := range objects {
		if u.GetDeletionTimestamp() != nil {
			deleted = append(deleted, u)
		} else {
			kept = append(kept, u)
		}
	}
	return kept, deleted, nil
}

// planOffline is the plan of the files over nothing.
func (o *planOptions) planOffline(objects []*unstructured.Unstructured) (preview.Plan, error) {
	namespace := o.flags.Namespace
	if namespace == "" {
		namespace = "default"
	}
	w, err := offline.NewWorld(objects, namespace)
	if err != nil {
		return preview.Plan{}, err
	}
	outcome, err := w.DecidePlacements(time.Time{})
	if err != nil {
		return preview.Plan{}, fmt.Errorf("%w; without --offline, those of the hub count", err)
	}
	in := preview.Input{ViewsAfter: map[string]atoll.ClusterView{}}
	for _, c := range w.Clusters() {
		in.ViewsAfter[c.Name] = atoll.ClusterViewOf(c)
	}
	for i := range outcome.Bundles {
		in.Bundles = append(in.Bundles, newBundleAddition(&outcome.Bundles[i]))
	}
	for i := range outcome.Placements {
		in.Placements = append(in.Placements, newPlacementPlan(&outcome.Placements[i]))
	}
	for _, u := range outcome.Unplaced {
		if u.Key.Kind != "Namespace" {
			in.Unplaced = append(in.Unplaced, preview.UnplacedTemplate(u))
		}
	}
	return preview.BuildPlan(in), nil
}

// printPlan prints the plan. Its error shows whether the plan changes anything.
func (o *planOptions) printPlan(out io.Writer, p preview.Plan) error {
	p.Notes = o.notes
	done, err := o.format.PrintStructured(out, p)
	if !done {
		_, err = io.WriteString(out, p.FormatText(o.all))
	}
	if err == nil && (p.Changes || len(p.Refused) > 0) {
		return ErrChanges
	}
	return err
}

// printHubPlan is the plan over what the hub has.
func (o *planOptions) printHubPlan(ctx context.Context, out io.Writer, c *client.Connection, objects, deleted []*unstructured.Unstructured) error {
	t, err := newDryRun(c, objects)
	if err != nil {
		return err
	}
	body, err := t.run(ctx, objects, deleted)
	if err != nil {
		return err
	}
	p, err := AskHub(ctx, c, body)
	if err != nil {
		return err
	}
	return o.printPlan(out, p)
}

// AskHub returns the plan of the hub.
func AskHub(ctx context.Context, c *client.Connection, body Request) (p preview.Plan, err error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return p, fmt.Errorf("request the plan: %w", err)
	}
	request := c.REST.Post().AbsPath(atoll.PlanPath).SetHeader("Content-Type", "application/json").Body(raw)
	err = c.DecodeAnswer(request.Do(ctx), "what is no plan", &p)
	return p, err
}
