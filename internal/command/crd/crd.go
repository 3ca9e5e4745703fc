// Package crd is the command `atoll crd`: definitions of kinds (CustomResourceDefinitions) that members
// have and the hub lacks.
//
// Contract: a member is read through the hub, with the user's own rights there, and never written. The
// hub is written as the user, by server-side apply, after it accepted the same as a dry run. A definition
// that this command did not apply before is replaced only with --force, and one of the hub's own never.
package crd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/command/client"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Bring definitions of kinds from a cluster to the hub",
	}
	cmd.AddCommand(newPullCommand(flags))
	return cmd
}

func newPullCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &pullOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "pull CLUSTER NAME... | CLUSTER --all [--group GROUP]",
		Short: "Write a cluster's CustomResourceDefinitions to the hub as templates",
		Long: `Write a cluster's CustomResourceDefinitions to the hub as templates.

NAME is the full name (widgets.example.com), or the resource, kind or short name (widgets, Widget)
where one definition of the cluster has it. The definitions are read through the hub: you need the
right to get them in the cluster, and for --all and short names to list them.

The template has the names, versions and schemas, labels and annotations of the cluster's definition.
Left out are:
- the status, owners, finalizers and other metadata of the cluster's own object,
- labels and annotations of Atoll, and of the tools that installed it there (Helm, Argo CD, Flux,
  OLM, cert-manager's injection and others),
- spec.conversion with its webhook, which is a service of that cluster with a CA of its own. The hub
  calls no webhook. Clusters with the definition keep theirs, and others convert without one.

It is applied to the hub as you, as field manager atoll-cli. Running the command again brings the
template up to date. A definition on the hub that this command did not write is not changed: its
differences are printed with their managers, and --force takes the fields over. Atoll's own kinds,
and others that the hub brings itself, are never changed.

A definition on the hub goes to clusters along with objects of its kind that are placed there, by a
policy with propagateDeps: true. The template has the annotation atoll.dev/conflict-resolution:
AdoptIfSame. So a cluster that has the same definition adopts it, and one that has another keeps its
own and reports a Conflict. The command prints where the definitions go at once, and how to keep
them on the hub.`,
		Example: `  atoll crd pull tokyo-1 widgets.example.com
  atoll crd pull tokyo-1 widgets gadgets --dry-run
  atoll crd pull tokyo-1 --all --group example.com
  atoll crd pull tokyo-1 widgets -o yaml > widgets.yaml`,
		Args: func(_ *cobra.Command, args []string) error { return o.takeArguments(args) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all definitions of the cluster but Atoll's own")
	f.StringVar(&o.group, "group", "", "with --all: only those of this API group, such as example.com")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would happen, as the hub answers, and write nothing")
	f.BoolVar(&o.force, "force", false, "replace definitions on the hub that others wrote")
	o.format.AddTo(f, "yaml")
	cmd.MarkFlagsMutuallyExclusive("output", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("output", "force")
	return cmd
}

// takeArguments stores the arguments, and refuses those that do not go together.
func (o *pullOptions) takeArguments(args []string) error {
	if len(args) == 0 {
		return errors.New("name the cluster and the definitions, as in: atoll crd pull tokyo-1 widgets.example.com")
	}
	o.cluster, o.names = args[0], args[1:]
	switch {
	case o.group != "" && !o.all:
		return errors.New("--group chooses among all definitions: give --all, too")
	case o.all && len(o.names) > 0:
		return fmt.Errorf("--all takes no names, but there is %s", strings.Join(o.names, ", "))
	case !o.all && len(o.names) == 0:
		return fmt.Errorf("name the definitions of %s to pull, or give --all", o.cluster)
	}
	return nil
}
