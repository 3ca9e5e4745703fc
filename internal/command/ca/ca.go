// Package ca is the command `atoll ca`, which shows and rotates the CAs by which a hub, its users
// and its agents identify each other.
//
// Contract: status reads; rotate and finish change one thing at the hub, which refuses to lock a
// user or an agent out unless it is forced. Keys never leave the hub.
package ca

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/trust/standing"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca status|rotate|finish",
		Short: "Show and rotate the CAs by which hub, users and agents identify each other",
		Long: `Show and rotate the CAs by which a hub, its users and its agents identify each other.

A rotation has two steps, and all hubs of one etcd take both at once. "rotate" makes new
CAs, which sign from then on, while the former ones count beside them: connected agents
get new certificates and the new CA within minutes, agents that check in at their next
check-in. "finish" ends the trust in the former CAs, once all connected agents have new
certificates. A disconnected agent comes back by its key; no visit to a member is needed.

Before finishing, replace all copies of the hub's hub.kubeconfig: the client certificate
in it is signed by the former CA. Kubeconfigs with tokens stay valid.`,
	}
	cmd.AddCommand(
		newCASubcommand(flags, "status", "Show the hub's CAs and certificates, and which agents have certificates of which CA", "", nil),
		newCASubcommand(flags, "rotate", "Begin a rotation: new CAs sign, and the former count beside them", standing.ActionRotate, nil),
		newFinishRotationCommand(flags),
	)
	return cmd
}

func newFinishRotationCommand(flags *client.ConnectionFlags) *cobra.Command {
	var force bool
	cmd := newCASubcommand(flags, "finish", "Finish a rotation: the former CAs do not count any more", standing.ActionFinish, &force)
	cmd.Flags().BoolVar(&force, "force", false, "though agents that are in touch have certificates of the former CA alone: they come back by their key")
	return cmd
}

// newCASubcommand returns a subcommand that requests an action from the hub, or, without one, the present state.
func newCASubcommand(flags *client.ConnectionFlags, use, short, action string, force *bool) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			s, err := requestCAStatus(cmd.Context(), c, action, force != nil && *force)
			if err != nil {
				return err
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), s); done {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), s.FormatText(false))
			return err
		},
	}
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func requestCAStatus(ctx context.Context, c *client.Connection, action string, force bool) (standing.CAStatus, error) {
	var s standing.CAStatus
	request := c.REST.Get().AbsPath(standing.Path)
	if action != "" {
		request = c.REST.Post().AbsPath(standing.Path).Param("action", action).Param("force", strconv.FormatBool(force))
	}
	err := c.DecodeAnswer(request.Do(ctx), "something else", &s)
	return s, err
}
