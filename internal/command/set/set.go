// Package set holds the commands `atoll set create|delete`: a set of clusters with its admins,
// made and taken back in one go.
//
// Contract: create may be repeated, and completes what exists; each call gives a new token and
// takes none back. The selector of a set changes only where one is stated. Objects for its admins
// carry the label atoll.dev/set-admins.
package set

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/command/client"

	"atoll.dev/atoll/internal/phrase"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Make sets of clusters and hand them to their admins",
	}
	cmd.AddCommand(createSetCommand(flags), deleteSetAdminsCommand(flags))
	return cmd
}

func createSetCommand(flags *client.ConnectionFlags) *cobra.Command {
	var s setAdminSpec
	var file, selector string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a set of clusters, and a kubeconfig for its admin",
		Long: `Make a set of clusters, and write a kubeconfig for its admins.

It makes, or brings up to date: the ClusterSet, which by default holds the Clusters
that are labelled atoll.dev/set=NAME, and whose selector stays as it is when there
is one already; a ClusterRole that gives the verbs manage and bind on it;
ClusterRoleBindings to that and to the shipped role atoll:cluster-admin; and a
ServiceAccount in atoll-system, whose token is in the kubeconfig. Its admins edit,
accept and delete the Clusters of the set; where they may write ClusterSetBindings,
they may bind that namespace to it.

It needs the right to make ClusterRoles and ClusterRoleBindings, which the hub's own
administrator has. The token ends after --lifetime; run the command again for a new
one, with the same admins: those that are not named any more lose their rights.`,
		Example: `  atoll set create asia --admin aiko
  atoll set create edge --selector tier=edge --admin-group edge-operators --lifetime 8h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.name = args[0]
			if err := s.validate(selector); err != nil {
				return err
			}
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			kubeconfig, until, err := createSetWithAdmins(cmd.Context(), c, s)
			if err != nil {
				return err
			}
			file, err = client.WriteKubeconfig(cmd.OutOrStdout(), file, s.name, kubeconfig)
			if err != nil || file == "" {
				return err
			}
			return printCreated(cmd.OutOrStdout(), s, file, until)
		},
	}
	f := cmd.Flags()
	f.StringVar(&selector, "selector", "", "labels of the Clusters that it holds, as in kubectl (default: atoll.dev/set=NAME, and no other set's)")
	f.StringSliceVar(&s.users, "admin", nil, "users that are its admins")
	f.StringSliceVar(&s.groups, "admin-group", nil, "groups that look after it")
	f.DurationVar(&s.lifetime, "lifetime", client.DefaultLifetime, "how long the kubeconfig is good for, at least 10m")
	f.StringVar(&s.server, "server", "", "address of the hub in the kubeconfig (default: as in yours)")
	f.StringVar(&file, "out", "", "file for the kubeconfig, - for standard output (default: NAME.kubeconfig)")
	return cmd
}

func printCreated(out io.Writer, s setAdminSpec, file string, until time.Time) error {
	who := "its holder"
	if more := append(append([]string{}, s.users...), s.groups...); len(more) > 0 {
		who += ", and " + strings.Join(more, ", ") + ","
	}
	_, err := fmt.Fprintf(out, `Set %s is there. %s is the kubeconfig of its admin, good until %s:
%s may edit, accept and delete its Clusters.

  atoll token create --set %s        lets a cluster join it
  atoll tenant create NAME --set %s  lets a team place on it
`, s.name, file, phrase.FormatTime(until), who, s.name, s.name)
	return err
}

func deleteSetAdminsCommand(flags *client.ConnectionFlags) *cobra.Command {
	var withSet bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Take the rights of a set's admins away; its Clusters stay",
		Long: `Take the rights of a set's admins away: their role and its bindings, and the
ServiceAccount, so that kubeconfigs end at once. The set and its Clusters stay.
--with-set deletes the ClusterSet too: then no namespace is newly placed on its
Clusters, and what runs there stays and is shown Unfit, unless its policy has
whenUnfit: Remove.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			found, err := removeSetAdmins(cmd.Context(), c, args[0], withSet)
			switch {
			case err != nil:
				return err
			case !found:
				return errors.New("there is nothing to take away: `kubectl get clustersets` lists the sets, and the admins of \"" + args[0] + "\" did not get it by `atoll set create`")
			case withSet:
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "set %s and the rights of its admins are gone; its Clusters stay\n", args[0])
			default:
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the admins of set %s have no rights on it any more; the set and its Clusters stay\n", args[0])
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&withSet, "with-set", false, "delete the ClusterSet too")
	return cmd
}
