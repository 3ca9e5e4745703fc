// Package accept holds the commands `atoll accept` and `atoll deny`, the hub's half of the
// handshake.
//
// Contract: both are idempotent and may be repeated. The handshake package holds the effects of a
// decision; this package prints them.
package accept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/trust/handshake"
)

type acceptOptions struct {
	flags   *client.ConnectionFlags
	wait    bool
	timeout time.Duration
}

// NewCommand makes `atoll accept`.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &acceptOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "accept CLUSTER...",
		Short: "Accept clusters that requested to join",
		Long: `Accept clusters that requested to join: the hub's half of the handshake.

It accepts the Cluster and approves its certificate request, so it needs the
verb "accept" on clusters and "approve" on the signer of agents' certificates.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := o.flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := o.accept(cmd.Context(), c, name, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "return when the cluster is Ready")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait")
	return cmd
}

// NewDenyCommand makes `atoll deny`.
func NewDenyCommand(flags *client.ConnectionFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "deny CLUSTER...",
		Short: "Refuse clusters that requested to join, or cut joined ones off at once",
		Long: `Refuse clusters that requested to join, or cut joined ones off at once.

What runs in the cluster goes on running; accepting it again reconnects it. To
remove the cluster, use "atoll remove".`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := denyCluster(cmd.Context(), c, name, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (o *acceptOptions) accept(ctx context.Context, c *client.Connection, name string, out io.Writer) error {
	cluster, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", name)
	if client.IsGone(err) {
		return fmt.Errorf("no cluster requested to join as %q yet; `atoll get clusters` shows those that did", name)
	}
	if err != nil {
		return err
	}
	var keys []string
	if err := retryOnConflict(func() (err error) { keys, err = newAdmin(c).AcceptCluster(ctx, name); return err }); err != nil {
		return c.ExplainError(err)
	}
	if cluster.Spec.Accepted && len(keys) == 0 {
		fmt.Fprintf(out, "cluster %s was accepted already\n", name)
	} else {
		fmt.Fprintf(out, "cluster %s accepted\n", name)
	}
	for _, k := range keys {
		fmt.Fprintf(out, "approved the agent key %s\n", k)
	}
	if !o.wait {
		return nil
	}
	return o.waitReady(ctx, c, cluster, out)
}

func denyCluster(ctx context.Context, c *client.Connection, name string, out io.Writer) error {
	if err := retryOnConflict(func() error { return newAdmin(c).DenyCluster(ctx, name) }); err != nil {
		return c.ExplainError(err)
	}
	_, err := fmt.Fprintf(out, "cluster %s denied\n", name)
	return err
}

func newAdmin(c *client.Connection) handshake.Admin {
	return handshake.Admin{Hub: c.Dynamic}
}

// retryOnConflict repeats what lost a race against the hub's own writes.
func retryOnConflict(do func() error) error { return retry.RetryOnConflict(retry.DefaultBackoff, do) }

func (o *acceptOptions) waitReady(ctx context.Context, c *client.Connection, cluster *v1alpha1.Cluster, out io.Writer) error {
	why := "its agent has sent nothing"
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, o.timeout, true, func(ctx context.Context) (bool, error) {
		now, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", cluster.Name)
		if apierrors.IsNotFound(err) {
			return false, errors.New("it was removed")
		}
		if err != nil {
			// The hub may be restarting; the deadline is above.
			return false, nil
		}
		if now.UID != cluster.UID {
			return false, errors.New("it was removed and requested to join again")
		}
		cond := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ClusterReady)
		if cond == nil {
			return false, nil
		}
		why = cond.Reason + ": " + cond.Message
		return cond.Status == metav1.ConditionTrue, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("cluster %s is accepted, but not Ready within %s: %s", cluster.Name, o.timeout, why)
	}
	if err != nil {
		return fmt.Errorf("wait for cluster %s: %w", cluster.Name, err)
	}
	_, err = fmt.Fprintf(out, "cluster %s is Ready\n", cluster.Name)
	return err
}
