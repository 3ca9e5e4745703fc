// Package restore is the command `atoll restore accept`, which lets a hub go on
// after it was restored from an older state.
//
// Contract: it writes one field of HubState, fenced by the version that it showed;
// what the two answers do is the hub's.
package restore

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
)

// hubState is the one HubState's name.
const hubState = "hub"

// NewCommand makes the command.
func NewCommand(flags *client.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Let a hub go on that was restored from an older state",
	}
	cmd.AddCommand(acceptCommand(flags))
	return cmd
}

func acceptCommand(flags *client.Flags) *cobra.Command {
	var hub, members bool
	cmd := &cobra.Command{
		Use:   "accept --hub|--members",
		Short: "Say whose word counts where the restored hub and its members differ",
		Long: `Say whose word counts where the restored hub and its members differ.

After a restore from an older state the hub holds: it serves and observes, and
orders nothing. Two answers let it go on:

  --hub      what the hub has now counts. What it does not know is kept in the
             members and reported as unclaimed.
  --members  removals that members remember come back, held until they are
             confirmed; what the hub forgot is not made up.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer := "hub"
			if members {
				answer = "members"
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			state, err := client.Get[enginev1.HubState](ctx, c, client.HubStates, "", hubState)
			if apierrors.IsNotFound(err) && !client.NoHub(err) || err == nil && state.Rewound == nil {
				return errors.New("this hub does not hold: nothing to accept")
			}
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"resourceVersion": state.ResourceVersion},
				"rewound":  map[string]any{"accepted": answer},
			})
			if err != nil {
				return err
			}
			_, err = c.Dynamic.Resource(client.HubStates).Patch(ctx, hubState, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "atoll-cli"})
			if apierrors.IsConflict(err) {
				return errors.New("the hub's state changed meanwhile: look again, then repeat the command")
			}
			if err != nil {
				return c.Explain(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the hub goes on; it held since %s because %s\n", state.Rewound.Since.UTC().Format("2006-01-02 15:04:05 MST"), state.Rewound.Reason)
			return err
		},
	}
	cmd.Flags().BoolVar(&hub, "hub", false, "what the hub has now counts")
	cmd.Flags().BoolVar(&members, "members", false, "removals that members remember come back as held ones")
	cmd.MarkFlagsMutuallyExclusive("hub", "members")
	cmd.MarkFlagsOneRequired("hub", "members")
	return cmd
}
