// Package restore is the command `atoll restore`, by which a hub that was restored
// from an older state is looked at and goes on.
//
// Contract: accept writes one field of HubState, fenced by the version that it
// showed; keep writes one annotation, for exactly the plan that it is given; what
// either does is the hub's. status writes nothing.
package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// hubStateName is the one HubState's name.
const hubStateName = "hub"

const timeLayout = "2006-01-02 15:04:05 MST"

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "See to a hub that was restored from an older state",
	}
	cmd.AddCommand(newRestoreStatusCommand(flags), newRestoreAcceptCommand(flags), newRestoreKeepCommand(flags))
	return cmd
}

func newRestoreAcceptCommand(flags *client.ConnectionFlags) *cobra.Command {
	var hub, members bool
	cmd := &cobra.Command{
		Use:   "accept --hub|--members",
		Short: "Decide which side counts where the restored hub and its members differ",
		Long: `Decide which side counts where the restored hub and its members differ.

After a restore from an older state the hub holds: it serves and observes, and
orders nothing. It goes on after one of two answers:

  --hub      what the hub has now counts: what was removed after the state that it
             was restored to comes back. What it does not have is kept in the
             members and reported as unclaimed.
  --members  removals that members recorded come back, held until they are
             confirmed ("atoll confirm") or taken back ("atoll restore keep"); what
             the hub lost is not made up. A member that is away reports when
             it comes back, for 30 days.

Either way nothing is deleted by this command. "atoll restore status" shows
what each would mean here.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer := "hub"
			if members {
				answer = "members"
			}
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			return acceptRestoreAnswer(cmd, c, answer)
		},
	}
	cmd.Flags().BoolVar(&hub, "hub", false, "what the hub has now counts")
	cmd.Flags().BoolVar(&members, "members", false, "removals that members recorded come back as held ones")
	cmd.MarkFlagsMutuallyExclusive("hub", "members")
	cmd.MarkFlagsOneRequired("hub", "members")
	return cmd
}

func acceptRestoreAnswer(cmd *cobra.Command, c *client.Connection, answer string) error {
	state, err := readHubState(cmd.Context(), c)
	switch {
	case err != nil:
		return err
	case state.Rewound == nil:
		return errors.New("this hub does not hold: nothing to accept")
	case state.Rewound.Accepted != "":
		return fmt.Errorf("this hub goes on already: --%s was accepted. To change single answers, see: atoll restore status", state.Rewound.Accepted)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": state.ResourceVersion},
		"rewound":  map[string]any{"accepted": answer},
	})
	if err != nil {
		return err
	}
	_, err = c.Dynamic.Resource(client.HubStates).Patch(cmd.Context(), hubStateName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: atoll.CLIFieldManager})
	if apierrors.IsConflict(err) {
		return errors.New("the hub's state has changed since: look again, then repeat the command")
	}
	if err != nil {
		return c.ExplainError(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the hub goes on; it held since %s because %s\n", state.Rewound.Since.UTC().Format(timeLayout), state.Rewound.Reason)
	return err
}

// readHubState reads the HubState; empty where the hub has none.
func readHubState(ctx context.Context, c *client.Connection) (*enginev1.HubState, error) {
	state, err := client.Get[enginev1.HubState](ctx, c, client.HubStates, "", hubStateName)
	if client.IsGone(err) {
		return &enginev1.HubState{}, nil
	}
	return state, err
}

func newRestoreKeepCommand(flags *client.ConnectionFlags) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use:   "keep KIND/NAME [-n NAMESPACE] --plan HASH",
		Short: "Take back removals that members recorded and the restored hub did not",
		Long: `Take back removals that members recorded and the restored hub did not: what they
are about is placed again, as the hub has it.

KIND is bundle or clusterbundle. The opposite is "atoll confirm" with the same
arguments. The answer is good for exactly that plan.`,
		Example: "  atoll restore status\n  atoll restore keep bundle/web -n shop --plan 3f9c2a17",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			o, err := c.ParseObject(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if o.Resource != client.Bundles && o.Resource != client.ClusterBundles {
				return fmt.Errorf("removals are decided per Bundle, and %s is none: `atoll restore status` names the Bundles", args[0])
			}
			return cancelPlannedRemovals(cmd, c, o, plan)
		},
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&plan, "plan", "", "hash of the plan to take back (required)")
	if err := cmd.MarkFlagRequired("plan"); err != nil {
		panic(err)
	}
	return cmd
}

func cancelPlannedRemovals(cmd *cobra.Command, c *client.Connection, o client.Object, plan string) error {
	ctx := cmd.Context()
	bundle, err := client.Get[v1alpha1.Bundle](ctx, c, o.Resource, o.Namespace, o.Name)
	if err != nil {
		return err
	}
	rows, err := client.ListRows(ctx, c, "", func(r client.Row) bool { return r.Namespace == o.Namespace && r.Bundle == o.Name })
	if err != nil {
		return err
	}
	waiting, ok := client.PendingPlans(bundle.Annotations, rows)[plan]
	switch {
	case !ok:
		return fmt.Errorf("%s/%s does not wait for plan %s; `atoll restore status` lists what waits", o.Resource.Resource, o.Name, plan)
	case !waiting.Recalled:
		return fmt.Errorf("plan %s is not about removals before a restore: undo the edit that causes it, or release it with `atoll confirm`", plan)
	}
	if err := c.AnswerPlan(ctx, o, bundle.UID, atoll.AnnotationKeep, plan); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "what plan %s would remove is placed again; follow it with: atoll get rows %s -n %s\n", plan, o.Name, o.Namespace)
	return err
}
