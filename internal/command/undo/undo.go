// Package undo is the command `atoll undo`: it lists what can be taken back, and takes it back.
//
// Contract: without a confirmation nothing is written. A write is made as the user, and only if the object
// is as it was when the plan was made. Values of Secrets are never shown.
package undo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/plan"
)

type undoOptions struct {
	flags    *client.ConnectionFlags
	format   output.Format
	to       string
	revision string
	yes      bool
	force    bool
	all      bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &undoOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "undo [KIND/NAME...] [-n NAMESPACE] [--to TIME | --revision REVISION] [--yes]",
		Short: "Take back an edit, or bring back a deleted object",
		Long: `Take back an edit, or bring back a deleted object.

The hub keeps what users change and delete of placed objects, of policies, override policies
and Placements, for the time that undoWindow of the HubSettings states (24h by default).

Without an argument the command lists what can be taken back in the namespace, and of
objects without a namespace. With objects it shows what would change in each, and the plan
of the hub: what each cluster gets. It then waits for a yes, or with --yes does it. It takes back the latest
change. --to goes back to the state at a time, --revision to the state before the change with
this revision in the list. Fields that others changed later stay as they are. An undo is
a change like any other, and can be taken back.

You see the changes of objects that you may get, and need the right to write what is taken
back. If the object changes between the plan and the write, nothing is written; --force
writes all the same.

Without a terminal and without --yes nothing is written, and the exit code is 2 if something
would change.`,
		Example: `  atoll undo -n shop
  atoll undo deployment/web -n shop
  atoll undo deployment/web configmap/web -n shop --to 30m --yes
  atoll undo deployment/web -n shop --revision 48213`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	flags.AddNamespace(cmd.Flags())
	cmd.Flags().StringVar(&o.to, "to", "", "the state at this time: RFC 3339, or a duration before now such as 30m")
	cmd.Flags().StringVar(&o.revision, "revision", "", "the state before the change with this revision; of one object")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do it without a question")
	cmd.Flags().BoolVar(&o.force, "force", false, "write also if the object has changed since the plan, or was made again since the change")
	cmd.Flags().BoolVar(&o.all, "all", false, "leave nothing of a large fleet to a count")
	cmd.MarkFlagsMutuallyExclusive("to", "revision")
	o.format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

func (o *undoOptions) run(cmd *cobra.Command, args []string) error {
	if o.revision != "" && len(args) != 1 {
		return errors.New("--revision is of one object: name it as KIND/NAME")
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return o.printList(cmd.Context(), cmd.OutOrStdout(), c)
	}
	return o.undoObjects(cmd, c, args)
}

func (o *undoOptions) undoObjects(cmd *cobra.Command, c *client.Connection, args []string) error {
	var all []*change
	for _, arg := range args {
		one, err := o.prepareChange(cmd.Context(), c, arg)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	changes, err := o.showChanges(cmd.Context(), cmd.OutOrStdout(), c, all)
	if err != nil || !changes {
		return err
	}
	if ok, err := o.isConfirmed(cmd); err != nil || !ok {
		return err
	}
	return o.writeChanges(cmd.Context(), cmd.OutOrStdout(), c, all)
}

// isConfirmed reports whether the undo is confirmed, by --yes or on the terminal. Without a terminal its error shows
// that something would change.
func (o *undoOptions) isConfirmed(cmd *cobra.Command) (bool, error) {
	switch {
	case o.yes:
		return true, nil
	case output.IsTerminal(cmd.InOrStdin()):
		return output.AskPerson(cmd.InOrStdin(), cmd.OutOrStdout(), "Take it back?")
	}
	if !o.isStructured() {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing is changed yet: --yes does it."); err != nil {
			return false, err
		}
	}
	return false, plan.ErrChanges
}

// isStructured reports whether the plan is printed for programs, as a document without other text.
func (o *undoOptions) isStructured() bool {
	return o.format.IsFormat("json") || o.format.IsFormat("yaml")
}

func (o *undoOptions) writeChanges(ctx context.Context, out io.Writer, c *client.Connection, all []*change) error {
	for _, one := range all {
		if one.isEmpty() {
			continue
		}
		if err := one.write(ctx, c, o.force); err != nil {
			return fmt.Errorf("%s: %w", one.argument, one.explainWriteError(c, err))
		}
		if o.isStructured() {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s %s; follow it with: atoll explain %s%s\n", one.argument, one.doneText(), one.argument, one.namespaceFlag()); err != nil {
			return err
		}
	}
	return nil
}
