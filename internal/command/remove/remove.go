// Package remove is the command `atoll remove`, which gives up a cluster that does
// not come back.
//
// Contract: it deletes exactly the Cluster that it looked at (by UID), after it
// read what the hub believes to be in it; nothing is deleted in the member.
package remove

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// left is an object that stays in the member with nobody to look after it.
type left struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Bundle    string `json:"bundle,omitempty"`
	// State that the cluster last reported of the Bundle; "" if none ever.
	State atoll.RowState `json:"state,omitempty"`
}

type options struct {
	flags  *client.Flags
	format output.Format
	force  bool
	dryRun bool
}

// NewCommand makes the command.
func NewCommand(flags *client.Flags) *cobra.Command {
	o := &options{flags: flags}
	cmd := &cobra.Command{
		Use:   "remove CLUSTER",
		Short: "Give up a cluster that does not come back, and list what was left behind in it",
		Long: `Give up a cluster that does not come back, and list what was left behind in it.

The hub forgets the cluster: what waited for it goes on, and its agent is refused
from then on. Nothing is deleted in the cluster. To empty a cluster that is
there, move its applications away first: edit their placement, or taint it with
NoExecute.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "also give up a cluster that is connected")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only list what would be left behind")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *options) run(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	c, err := o.flags.Connect()
	if err != nil {
		return err
	}
	cluster, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", name)
	if err != nil {
		return err
	}
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ClusterReady) && !o.force && !o.dryRun {
		return fmt.Errorf("cluster %s is connected: move its applications away first (edit their placement, or taint it with NoExecute), or give it up with all that runs there by --force", name)
	}
	behind, err := leftBehind(ctx, c, string(cluster.UID))
	if err != nil {
		return err
	}
	if !o.dryRun {
		err := c.Dynamic.Resource(client.Clusters).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(cluster.UID)}})
		if err != nil && !apierrors.IsNotFound(err) {
			return c.Explain(err)
		}
	}
	if done, err := o.format.Structured(cmd.OutOrStdout(), behind); done {
		return err
	}
	return o.print(cmd.OutOrStdout(), name, behind)
}

// leftBehind lists the items of all rows of the cluster. A revision that is gone
// already held nothing that a row still names.
func leftBehind(ctx context.Context, c *client.Cluster, uid string) ([]left, error) {
	rows, err := client.Rows(ctx, c, func(r client.Row) bool { return r.Spec.UID == uid })
	if err != nil {
		return nil, err
	}
	behind := []left{}
	for _, r := range rows {
		if r.Bundle == "" { // no Bundle's: an empty namespace
			behind = append(behind, left{Kind: "Namespace", Name: r.Namespace})
			continue
		}
		keys, err := client.ItemKeys(ctx, c, r.Spec.Revision)
		var status apierrors.APIStatus
		if errors.As(err, &status) && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			l := left{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Bundle: bundleName(r)}
			if r.Status != nil {
				l.State = r.Status.State
			}
			if l.State != atoll.RowRemoved {
				behind = append(behind, l)
			}
		}
	}
	return behind, nil
}

func bundleName(r client.Row) string {
	if r.Namespace == "" {
		return r.Bundle
	}
	return r.Namespace + "/" + r.Bundle
}

func (o *options) print(out io.Writer, name string, behind []left) error {
	done := fmt.Sprintf("cluster %s is given up", name)
	if o.dryRun {
		done = fmt.Sprintf("cluster %s would be given up", name)
	}
	if len(behind) == 0 {
		_, err := fmt.Fprintf(out, "%s; nothing is left behind in it\n", done)
		return err
	}
	fmt.Fprintf(out, "%s; left behind in it, as far as the hub knows:\n\n", done)
	table := output.NewTable(out, "KIND", "NAMESPACE", "NAME", "BUNDLE", "LAST STATE")
	for _, l := range behind {
		kind := l.Kind
		if l.Group != "" {
			kind += "." + l.Group
		}
		table.Row(kind, l.Namespace, l.Name, l.Bundle, string(l.State))
	}
	return table.Flush()
}
