// Package rollout is the command `atoll rollout`, which shows, approves, pauses, resumes and exempts the rollout of a Bundle.
//
// Contract: status writes nothing. Approve, pause, resume and exempt write one field of the Bundle and nothing else, and the hub adds
// the user and the time.
package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show, approve, pause, resume and exempt the rollout of a change",
		Long: `Show, approve, pause, resume and exempt the rollout of a change.

A policy states in which stages a change of its templates reaches the clusters. KIND is
bundle or clusterbundle, or the kind of a template, which stands for its Bundle.`,
		Example: `  atoll rollout status deployment/web -n shop
  atoll rollout approve deployment/web -n shop --stage europe
  atoll rollout pause bundle/web -n shop --message "the canary is slow"
  atoll rollout resume bundle/web -n shop`,
	}
	cmd.AddCommand(newStatusCommand(flags), newPauseCommand(flags), newResumeCommand(flags), newApproveCommand(flags), newExemptCommand(flags))
	return cmd
}

func newStatusCommand(flags *client.ConnectionFlags) *cobra.Command {
	var format output.Format
	var watches, waits bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "status KIND/NAME [-n NAMESPACE] [--watch | --wait]", Short: "Show the stages of a rollout, and what it waits for", Args: cobra.ExactArgs(1),
		Long: `Show the stages of a rollout, and what it waits for.

--wait shows each change until the rollout is done, and exits with 0. It exits with 3 when
the rollout has failed, with 4 when it waits for a person, and with 5 after --timeout.
Name the template, so that the change that was just written counts.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watches || waits {
				return followRollout(cmd, flags, args[0], waits, timeout)
			}
			_, bundle, _, err := findBundle(cmd.Context(), flags, args[0])
			if err != nil {
				return err
			}
			done, err := format.PrintStructured(cmd.OutOrStdout(), bundle.Status.Rollout)
			if !done {
				_, err = io.WriteString(cmd.OutOrStdout(), formatRollout(args[0], bundle))
			}
			return err
		},
	}
	flags.AddNamespace(cmd.Flags())
	format.AddTo(cmd.Flags(), "json", "yaml")
	cmd.Flags().BoolVarP(&watches, "watch", "w", false, "show each change, until you end it")
	cmd.Flags().BoolVar(&waits, "wait", false, "show each change until the rollout is done, has failed or waits for a person")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "end after this time; 0: never")
	cmd.MarkFlagsMutuallyExclusive("watch", "wait")
	cmd.MarkFlagsMutuallyExclusive("output", "watch")
	cmd.MarkFlagsMutuallyExclusive("output", "wait")
	return cmd
}

func newPauseCommand(flags *client.ConnectionFlags) *cobra.Command {
	var pause v1alpha1.RolloutPause
	cmd := &cobra.Command{
		Use: "pause KIND/NAME [-n NAMESPACE] [--message TEXT]", Short: "Keep all clusters at their revision until a person resumes", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeTurn(cmd, flags, args[0], map[string]any{"pause": map[string]any{"reason": textOrNull(pause.Reason), "message": textOrNull(pause.Message)}}, "is paused")
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&pause.Reason, "reason", "", "reason in one CamelCase word")
	cmd.Flags().StringVar(&pause.Message, "message", "", "message for people")
	return cmd
}

// textOrNull returns the value of a text in a merge patch: an empty one takes away that of an earlier pause.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func newResumeCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume KIND/NAME [-n NAMESPACE]", Short: "Resume a rollout that is paused, or that failures hold", Args: cobra.ExactArgs(1),
		Long: `Resume a rollout that is paused, or that failures hold.

Clusters that failed before hold the rollout no more. Further failures count from 0. Where no rollout is stated, clusters
that are unhealthy now count no more until they report another state. A stated maxUnavailable counts them.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z") // the hub writes its own time in its place
			return writeTurn(cmd, flags, args[0], map[string]any{"pause": nil, "resume": map[string]any{"at": now}}, "is resumed")
		},
	}
	flags.AddNamespace(cmd.Flags())
	return cmd
}

func newExemptCommand(flags *client.ConnectionFlags) *cobra.Command {
	var message string
	cmd := &cobra.Command{
		Use: "exempt KIND/NAME --message TEXT [-n NAMESPACE]", Short: "Let one application change in a freeze, in an emergency", Args: cobra.ExactArgs(1),
		Long: `Let one application change in a freeze, in an emergency.

You need the verb exempt on the Bundle, and the right to patch it. Events of the Bundle name you and the message when
clusters change. A freeze that begins later holds the application again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z") // the hub writes its own time in its place
			return writeTurn(cmd, flags, args[0], map[string]any{"freezeExemption": map[string]any{"message": message, "at": now}}, "goes on in the freeze")
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&message, "message", "", "why, for people (required)")
	_ = cmd.MarkFlagRequired("message") // it exists
	return cmd
}

// writeTurn writes fields of the spec of a Bundle.
func writeTurn(cmd *cobra.Command, flags *client.ConnectionFlags, argument string, spec map[string]any, done string) error {
	c, bundle, of, err := findBundle(cmd.Context(), flags, argument)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": bundle.UID}, "spec": spec})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(of.Resource).Namespace(of.Namespace).Patch(cmd.Context(), of.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
	if err != nil {
		return c.ExplainError(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the rollout of %s %s; follow it with: atoll rollout status %s\n", argument, done, argument)
	return err
}

// findBundle returns the Bundle that an argument names, or that places the template that it names.
func findBundle(ctx context.Context, flags *client.ConnectionFlags, argument string) (*client.Connection, *v1alpha1.Bundle, client.Object, error) {
	c, err := flags.LoadClusterConnection()
	if err != nil {
		return nil, nil, client.Object{}, err
	}
	bundle, of, err := client.FindBundle(ctx, c, argument)
	return c, bundle, of, err
}
