package drift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
)

type correctOptions struct {
	flags    *client.ConnectionFlags
	clusters []string
	all      bool
	ids      []string
}

func newCorrectCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &correctOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "correct KIND/NAME [-n NAMESPACE] (--cluster NAME... | --all-clusters) [--id ID...]",
		Short: "Let clusters correct the drift of an object once, under drift: Approve",
		Long: `Let clusters correct the drift of an object once, under drift: Approve.

A cluster applies the object once, if the drift is still the one that is reported now, or creates the
object that is missing. Drift that changed since is reported again under another ID, and is not
corrected. Afterwards the cluster observes the object again. Later drift needs another approval.
Disconnected clusters correct when they are connected again.

--id approves only the drift that atoll drift listed under these IDs. The right to patch the Bundle of
the object is needed, as for atoll confirm. Under drift: Report nothing can be approved.`,
		Example: `  atoll drift deploy/web -n shop
  atoll drift correct deploy/web -n shop --cluster tokyo-1 --cluster oslo-2
  atoll drift correct deploy/web -n shop --all-clusters --id 3f9c2a17b5d6e8f0`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.clusters, "cluster", nil, "cluster that corrects the drift; more of them by commas or further flags")
	cmd.Flags().BoolVar(&o.all, "all-clusters", false, "all clusters that report drift of the object")
	cmd.Flags().StringSliceVar(&o.ids, "id", nil, "only drift with this ID; more of them by commas or further flags")
	cmd.MarkFlagsMutuallyExclusive("cluster", "all-clusters")
	return cmd
}

func (o *correctOptions) run(ctx context.Context, out io.Writer, argument string) error {
	if !o.all && len(o.clusters) == 0 {
		return errors.New("name the clusters that correct the drift: --cluster NAME, or --all-clusters")
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	object, err := c.ParseObject(ctx, argument)
	if err != nil {
		return err
	}
	request := c.RequestAbout(atoll.DriftPath, object)
	if len(o.clusters) == 1 {
		request.Param("cluster", o.clusters[0])
	}
	found, err := decodeDrifts(ctx, c, request)
	if err != nil {
		return err
	}
	chosen, left, err := o.chooseDrifts(argument, found)
	if err != nil {
		return err
	}
	for bundle, ids := range idsByBundle(chosen) {
		if err := approveDrifts(ctx, c, bundle, ids); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, o.formatApproved(argument, object.Namespace, chosen, left))
	return err
}

// driftChoice is what of the reported drift is approved, and what is not.
type driftChoice struct {
	chosen []preview.DriftedObject
	// reportOnly and approved are clusters whose drift has no ID, or was approved before.
	reportOnly, approved []string
	// absent and absentIDs are the named clusters and IDs that no drift has.
	absent, absentIDs []string
}

// chooseDrifts returns the drift that is approved, and how much of it waits for another run.
func (o *correctOptions) chooseDrifts(argument string, found *preview.Drifts) (chosen []preview.DriftedObject, left int, err error) {
	c := driftChoice{absent: slices.Clone(o.clusters), absentIDs: slices.Clone(o.ids)}
	for _, d := range found.Objects {
		if o.all || slices.Contains(o.clusters, d.Cluster) {
			c.addDrift(d, o.ids)
		}
	}
	if err := c.checkChosen(argument); err != nil {
		return nil, 0, err
	}
	n := min(len(c.chosen), atoll.MaxOrderedDrifts)
	return c.chosen[:n], len(c.chosen) - n + found.More, nil
}

// addDrift adds drift in a chosen cluster. Without ids all drift counts.
func (c *driftChoice) addDrift(d preview.DriftedObject, ids []string) {
	c.absent = slices.DeleteFunc(c.absent, func(name string) bool { return name == d.Cluster })
	c.absentIDs = slices.DeleteFunc(c.absentIDs, func(id string) bool { return id == d.ID })
	switch {
	case d.ID == "":
		c.reportOnly = append(c.reportOnly, d.Cluster)
	case len(ids) > 0 && !slices.Contains(ids, d.ID):
	case d.Approval != nil:
		c.approved = append(c.approved, d.Cluster)
	default:
		c.chosen = append(c.chosen, d)
	}
}

// checkChosen returns why the choice is not what the user stated.
func (c *driftChoice) checkChosen(argument string) error {
	switch {
	case len(c.absentIDs) > 0:
		return fmt.Errorf("no cluster reports drift of %s under the ID %s now, because it changed or is corrected: `atoll drift %s` lists what is there", argument, strings.Join(c.absentIDs, ", "), argument)
	case len(c.absent) > 0:
		return fmt.Errorf("no drift of %s is reported in %s: `atoll drift %s` lists what is there", argument, joinNames(c.absent), argument)
	case len(c.chosen) > 0:
		return nil
	case len(c.approved) > 0:
		return fmt.Errorf("the correction of %s is approved already in %s", argument, joinNames(c.approved))
	case len(c.reportOnly) > 0:
		return fmt.Errorf("%s in %s is only reported, and nothing is corrected: set drift: Approve, or drift: Correct, in the itemRules of its policy or by its annotation %s, and wait for the next report",
			argument, joinNames(c.reportOnly), atoll.AnnotationDrift)
	}
	return fmt.Errorf("no cluster reports drift of %s: nothing to correct", argument)
}

// joinNames lists the first names, and counts the others.
func joinNames(names []string) string { return phrase.JoinFirst(names, 10, len(names)) }

func idsByBundle(chosen []preview.DriftedObject) map[string][]string {
	out := map[string][]string{}
	for _, d := range chosen {
		out[d.Bundle] = append(out[d.Bundle], d.ID)
	}
	return out
}

// approveDrifts writes an order to correct the drift under the IDs. bundle is NAMESPACE/NAME, or the NAME of a
// ClusterBundle.
func approveDrifts(ctx context.Context, c *client.Connection, bundle string, ids []string) error {
	of := client.Object{Resource: client.ClusterBundles, Name: bundle}
	if ns, name, namespaced := strings.Cut(bundle, "/"); namespaced {
		of = client.Object{Resource: client.Bundles, Namespace: ns, Name: name}
	}
	b, err := client.Get[v1alpha1.Bundle](ctx, c, of.Resource, of.Namespace, of.Name)
	if err != nil {
		return err
	}
	order := atoll.FormatDriftOrders([]atoll.DriftOrder{{IDs: ids}})
	return c.AnswerPlan(ctx, of, b.UID, atoll.AnnotationCorrectDrift, order)
}

func (o *correctOptions) formatApproved(argument, namespace string, chosen []preview.DriftedObject, left int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "approved, to be corrected once:\n%s", formatDrifts(&preview.Drifts{Objects: chosen}, time.Now()))
	if left > 0 {
		fmt.Fprintf(&b, "%s with drift: run the command again for them\n", phrase.CountNoun(left, "more cluster"))
	}
	follow := "atoll drift " + argument
	if namespace != "" {
		follow += " -n " + namespace
	}
	fmt.Fprintf(&b, "follow it with: %s\n", follow)
	return b.String()
}
