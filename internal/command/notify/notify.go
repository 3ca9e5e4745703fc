// Package notify is the command `atoll notify`, which has the hub send a test to the target of a Notification.
//
// Contract: the command writes one field of the Notification and nothing else. The hub sends the message, as it sends every other one.
package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
)

var notifications = v1alpha1.GroupVersion.WithResource("notifications")

// lookInterval is the pause between two looks at the status.
const lookInterval = 500 * time.Millisecond

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify", Short: "Try the target of a Notification",
		Long: `Try the target of a Notification.

A Notification sends events of its namespace to Slack, Microsoft Teams, a webhook or an address of mail, such as a
Source that fails, or a rollout that waits for an approval. kubectl get notifications lists them.`,
	}
	cmd.AddCommand(newTestCommand(flags))
	return cmd
}

func newTestCommand(flags *client.ConnectionFlags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "test NAME [-n NAMESPACE]", Short: "Send a message of a test, and show whether the target takes it", Args: cobra.ExactArgs(1),
		Long: `Send a message of a test, and show whether the target takes it.

The command sets spec.testRequest of the Notification to the present time. The hub sends the message by the same way as
events. You need the right to patch the Notification.`,
		Example: "  atoll notify test chat -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			n, err := requestTest(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			for !n.Status.TestRequest.Equal(n.Spec.TestRequest) || n.Status.ObservedGeneration < n.Generation {
				if !pause.WaitFor(ctx, lookInterval) {
					return fmt.Errorf("the hub has not sent the test of %s within %s; see: kubectl get notification %s -n %s", args[0], phrase.FormatDuration(timeout), args[0], c.Namespace)
				}
				if n, err = client.Get[v1alpha1.Notification](ctx, c, notifications, c.Namespace, args[0]); err != nil {
					return err
				}
			}
			if f := n.Status.Failure; f != nil {
				return fmt.Errorf("the %s target of %s did not take the message: %s: %s", n.Status.Target, args[0], f.Reason, f.Message)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the %s target of %s took the message\n", n.Status.Target, args[0])
			return err
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the hub")
	return cmd
}

// requestTest requests a test. A suspended Notification is refused, because it sends nothing.
func requestTest(ctx context.Context, c *client.Connection, name string) (*v1alpha1.Notification, error) {
	n, err := client.Get[v1alpha1.Notification](ctx, c, notifications, c.Namespace, name)
	if err != nil {
		return nil, err
	}
	if n.Spec.Suspend {
		return nil, fmt.Errorf("the Notification %s is suspended, and sends nothing", name)
	}
	at := nextRequest(time.Now(), n.Spec.TestRequest)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"testRequest": phrase.FormatTime(at.Time)}})
	if err != nil {
		return nil, err
	}
	patched, err := c.Dynamic.Resource(notifications).Namespace(c.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
	if err != nil {
		return nil, c.ExplainError(err)
	}
	n.Spec.TestRequest, n.Generation = &at, patched.GetGeneration()
	return n, nil
}

// nextRequest returns the time of a request, which has whole seconds and is later than the one before, so that two requests of one second are
// two.
func nextRequest(now time.Time, before *metav1.Time) metav1.Time {
	now = now.UTC().Truncate(time.Second)
	if before != nil && !now.After(before.Time) {
		now = before.UTC().Add(time.Second)
	}
	return metav1.NewTime(now)
}
