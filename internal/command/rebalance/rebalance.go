// Package rebalance is the command `atoll rebalance`, which has what runs placed from
// scratch.
//
// Contract: without --yes nothing is written: the hub foretells, with the functions that
// act, what would come of it. With --yes exactly what was just foretold to change is
// annotated with one time, and everything else is left alone; the hub does the rest, and
// does it once.
package rebalance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/preview"
)

// ErrChanges is the error of a preview in which something would change, or is refused. It is
// no failure, and has its own exit code.
var ErrChanges = errors.New("something would change")

// rebalanceObject names an object of the request to the hub.
type rebalanceObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// rebalanceRequest as the hub takes it.
type rebalanceRequest struct {
	Objects   []rebalanceObject `json:"objects,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	All       bool              `json:"all,omitempty"`
	After     string            `json:"after,omitempty"`
}

// rebalanceAnswer is what the command prints for programs.
type rebalanceAnswer struct {
	preview.Rebalance
	// Done lists what was requested from the hub: "bundle/web" with its namespace before it.
	Done []string `json:"done,omitempty"`
}

type rebalanceOptions struct {
	flags         *client.ConnectionFlags
	format        output.Format
	allNamespaces bool
	dryRun        bool
	yes, showAll  bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &rebalanceOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "rebalance [bundle/NAME | policy/NAME | placement/NAME ...] [-n NAMESPACE | -A] [--yes]",
		Short: "Place what runs from scratch, with a preview first",
		Long: `Place what runs from scratch, with a preview first.

What runs stays where it is while clusters come, fill up and empty again. This command
has it placed as if it ran nowhere: clusters are chosen by their scores alone, the first
group of fall-back groups that can be had is used, clusters that drifted from their
placement are left, and replicas that follow room are divided again. What moves is healthy
in its new place before the old one goes, removals over the budget wait for a
confirmation, and nothing moves to a cluster that is away. StatefulSets stay in a cluster
that goes on holding them.

Without --yes the command shows what would change, and changes nothing: the sums first,
then each Bundle with the rows that come (+), go (-) and change (~). With --yes it requests
exactly that from the hub; what would not change is left alone.

A policy stands for all Bundles that it makes, a Placement for those of the policies that
refer to it, and for the clusters that it publishes itself. With -n alone all Bundles of
the namespace are meant, with -A all of the hub.

The exit code of a preview is 0 if nothing would change, and 2 if something would or is
refused; with --yes it is 0 if all was requested. 1 is a failure.`,
		Example: `  atoll rebalance bundle/web -n shop
  atoll rebalance bundle/web -n shop --yes
  atoll rebalance policy/web placement/edge -n shop
  atoll rebalance -A -o json`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), cmd.OutOrStdout(), args) },
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all Bundles of the hub, and those that are in no namespace")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would change, as without --yes")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do it")
	cmd.Flags().BoolVar(&o.showAll, "all", false, "leave nothing of a large fleet to a count")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *rebalanceOptions) run(ctx context.Context, out io.Writer, args []string) error {
	if err := o.checkArguments(args); err != nil {
		return err
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	ask, err := o.parseRequest(ctx, c, args)
	if err != nil {
		return err
	}
	all, err := o.requestAllPreviewPages(ctx, c, ask)
	if err != nil {
		return err
	}
	if o.yes {
		return o.requestRebalance(ctx, out, c, all)
	}
	if err := o.printPreview(out, all); err != nil {
		return err
	}
	if all.Changes || len(all.Refused) > 0 {
		return ErrChanges
	}
	return nil
}

// checkArguments refuses arguments that name nothing, or objects together with all Bundles.
func (o *rebalanceOptions) checkArguments(args []string) error {
	switch {
	case o.allNamespaces && len(args) > 0:
		return errors.New("-A means all Bundles: name none of them beside it")
	case !o.allNamespaces && len(args) == 0 && o.flags.Namespace == "":
		return errors.New("name what to rebalance: bundle/NAME, policy/NAME or placement/NAME, or -n NAMESPACE or -A for all Bundles there")
	}
	return nil
}

// parseRequest returns the request for the named objects, or for all Bundles of a namespace or the hub.
func (o *rebalanceOptions) parseRequest(ctx context.Context, c *client.Connection, args []string) (ask rebalanceRequest, err error) {
	ask.All = o.allNamespaces
	for _, arg := range args {
		if name, short := strings.CutPrefix(arg, "policy/"); short {
			arg = "propagationpolicy/" + name
		}
		is, err := c.ParseObject(ctx, arg)
		if err != nil {
			return ask, err
		}
		if is.Kind.Group != v1alpha1.GroupVersion.Group {
			return ask, fmt.Errorf("what is placed from scratch is a Bundle, or those of a policy or Placement: `atoll explain %s` names its Bundle", arg)
		}
		ask.Objects = append(ask.Objects, rebalanceObject{is.Kind.Kind, is.Namespace, is.Name})
	}
	if len(args) == 0 && !o.allNamespaces {
		ask.Namespace = c.Namespace
	}
	return ask, nil
}

// requestAllPreviewPages requests all pages of the preview.
func (o *rebalanceOptions) requestAllPreviewPages(ctx context.Context, c *client.Connection, ask rebalanceRequest) (all rebalanceAnswer, err error) {
	for {
		more, err := o.requestPreview(ctx, c, ask)
		if err != nil {
			return all, err
		}
		all.Add(more)
		if ask.After = more.Next; ask.After == "" {
			return all, nil
		}
	}
}

func (o *rebalanceOptions) printPreview(out io.Writer, all rebalanceAnswer) error {
	if done, err := o.format.PrintStructured(out, all); done || err != nil {
		return err
	}
	text := all.FormatText(o.showAll)
	if all.Changes {
		text += "Nothing is changed yet: --yes does it.\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// requestPreview requests from the hub what would come of it.
func (o *rebalanceOptions) requestPreview(ctx context.Context, c *client.Connection, requestPreview rebalanceRequest) (preview.Rebalance, error) {
	var p preview.Rebalance
	raw, err := json.Marshal(requestPreview)
	if err != nil {
		return p, fmt.Errorf("request the preview: %w", err)
	}
	request := c.REST.Post().AbsPath(atoll.RebalancePath).SetHeader("Content-Type", "application/json").Body(raw)
	err = c.DecodeAnswer(request.Do(ctx), "what is no preview", &p)
	return p, err
}

// requestRebalance carries the preview out: each object that would change is annotated. A failure is printed,
// and does not stop the others.
func (o *rebalanceOptions) requestRebalance(ctx context.Context, out io.Writer, c *client.Connection, all rebalanceAnswer) error {
	var failed []error
	do := func(resource schema.GroupVersionResource, kind, namespace, name string) {
		target := client.Object{Resource: resource, Namespace: namespace, Name: name}
		what := strings.TrimPrefix(namespace+"/"+kind+"/"+name, "/")
		if err := annotateRebalanceRequest(ctx, c, target, all.Asked); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
			return
		}
		all.Done = append(all.Done, what)
	}
	for _, p := range all.Placements {
		if p.Namespace == "" {
			do(v1alpha1.GroupVersion.WithResource("clusterplacements"), "clusterplacement", "", p.Name)
		} else {
			do(v1alpha1.GroupVersion.WithResource("placements"), "placement", p.Namespace, p.Name)
		}
	}
	for _, b := range all.Bundles {
		switch {
		case !b.WouldMove():
		case b.Namespace == "":
			do(client.ClusterBundles, "clusterbundle", "", b.Name)
		default:
			do(client.Bundles, "bundle", b.Namespace, b.Name)
		}
	}
	for _, r := range all.Refused {
		failed = append(failed, fmt.Errorf("%s is not rebalanced: %s", r.Object, r.Why))
	}
	if done, err := o.format.PrintStructured(out, all); err != nil {
		return err
	} else if !done {
		if _, err := io.WriteString(out, all.formatOutcome(o.showAll)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// formatOutcome returns the text of what was requested.
func (a rebalanceAnswer) formatOutcome(complete bool) string {
	if len(a.Done) == 0 {
		return a.FormatText(complete)
	}
	follow := "atoll get rows -A"
	if len(a.Done) == 1 {
		ns, rest, _ := strings.Cut(a.Done[0], "/")
		if follow = "atoll explain " + a.Done[0]; strings.Contains(rest, "/") {
			follow = "atoll explain " + rest + " -n " + ns
		}
	}
	return a.FormatText(complete) + fmt.Sprintf("%d to place from scratch; follow it with: %s\n", len(a.Done), follow)
}

// annotateRebalanceRequest annotates one object with the time.
func annotateRebalanceRequest(ctx context.Context, c *client.Connection, o client.Object, asked string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{atoll.AnnotationRebalance: asked}}})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(o.Resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
	return c.ExplainError(err)
}
