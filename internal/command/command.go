// Package command is the root of the CLI: it mounts the commands, one package each,
// and holds the flags that all share.
//
// Contract: New returns a tree that writes to the writers that cobra was given, ends
// no process, and returns errors that are ready to be shown. The tree serves one
// execution.
package command

import (
	"errors"

	"github.com/spf13/cobra"
	utilexec "k8s.io/utils/exec"

	"atoll.dev/atoll/internal/command/accept"
	"atoll.dev/atoll/internal/command/agent"
	"atoll.dev/atoll/internal/command/ca"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/confirm"
	"atoll.dev/atoll/internal/command/console"
	"atoll.dev/atoll/internal/command/crd"
	"atoll.dev/atoll/internal/command/credential"
	"atoll.dev/atoll/internal/command/diff"
	"atoll.dev/atoll/internal/command/drain"
	"atoll.dev/atoll/internal/command/drift"
	"atoll.dev/atoll/internal/command/exec"
	"atoll.dev/atoll/internal/command/explain"
	"atoll.dev/atoll/internal/command/freeze"
	"atoll.dev/atoll/internal/command/get"
	"atoll.dev/atoll/internal/command/interpret"
	"atoll.dev/atoll/internal/command/join"
	"atoll.dev/atoll/internal/command/kubeconfig"
	"atoll.dev/atoll/internal/command/logs"
	"atoll.dev/atoll/internal/command/migrate"
	"atoll.dev/atoll/internal/command/notify"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/command/plan"
	"atoll.dev/atoll/internal/command/rebalance"
	"atoll.dev/atoll/internal/command/remove"
	"atoll.dev/atoll/internal/command/restore"
	"atoll.dev/atoll/internal/command/rollout"
	"atoll.dev/atoll/internal/command/schedule"
	"atoll.dev/atoll/internal/command/set"
	"atoll.dev/atoll/internal/command/source"
	"atoll.dev/atoll/internal/command/tenant"
	"atoll.dev/atoll/internal/command/token"
	"atoll.dev/atoll/internal/command/top"
	"atoll.dev/atoll/internal/command/undo"
	"atoll.dev/atoll/internal/command/version"
	"atoll.dev/atoll/internal/profile"
)

// IsPrintedAnswer reports whether the error is none, but an answer that has been printed and has
// an exit code of its own, 2: something would change, or differs.
func IsPrintedAnswer(err error) bool {
	return errors.Is(err, plan.ErrChanges) || errors.Is(err, rebalance.ErrChanges) || errors.Is(err, diff.ErrDifferences) || errors.Is(err, drift.ErrDrift)
}

// ExitCode returns the exit code for an error: that of a command that ran in a container, and 1 for all others.
func ExitCode(err error) int {
	var ended utilexec.ExitError
	if errors.As(err, &ended) && ended.Exited() {
		return ended.ExitStatus()
	}
	return 1
}

// writesRaw are the commands that pass on the bytes of containers.
var writesRaw = map[string]bool{"exec": true, "logs": true, "agent": true}

// NewRootCommand makes the command `atoll`.
func NewRootCommand() *cobra.Command {
	flags := &client.ConnectionFlags{}
	root := &cobra.Command{
		Use:   "atoll",
		Short: "Many Kubernetes clusters that behave like one",
		Long: `Many Kubernetes clusters that behave like one.

Apply manifests to the hub with kubectl; these commands are for what kubectl has
no words for. All but "join" and "agent" talk to the hub: give its kubeconfig.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if !writesRaw[cmd.Name()] {
			cmd.SetOut(output.NewEscapingWriter(cmd.OutOrStdout()))
			cmd.SetErr(output.NewEscapingWriter(cmd.ErrOrStderr()))
		}
	}
	flags.AddTo(root.PersistentFlags())
	const look, apply, clusters, move, act = "look", "apply", "clusters", "move", "act"
	root.AddGroup(
		&cobra.Group{ID: look, Title: "See what is, and why:"},
		&cobra.Group{ID: apply, Title: "Apply from repositories:"},
		&cobra.Group{ID: clusters, Title: "Bring clusters and teams in and out:"},
		&cobra.Group{ID: move, Title: "Move what runs, and take changes back:"},
		&cobra.Group{ID: act, Title: "Answer when Atoll waits for you:"},
	)
	for id, commands := range map[string][]*cobra.Command{
		look:     {get.NewCommand(flags), logs.NewCommand(flags), exec.NewCommand(flags), top.NewCommand(flags), explain.NewCommand(flags), diff.NewCommand(flags), drift.NewCommand(flags), plan.NewCommand(flags), schedule.NewCommand(), interpret.NewCommand(), console.NewCommand(flags), notify.NewCommand(flags)},
		apply:    {source.NewCommand(flags)},
		clusters: {token.NewCommand(flags), set.NewCommand(flags), tenant.NewCommand(flags), join.NewCommand(flags), profile.AddProfileFlag(agent.NewCommand()), accept.NewCommand(flags), accept.NewDenyCommand(flags), remove.NewCommand(flags), kubeconfig.NewCommand(flags), crd.NewCommand(flags), credential.NewCommand(flags), ca.NewCommand(flags)},
		move:     {drain.NewCommand(flags), drain.NewUncordonCommand(flags), migrate.NewCommand(flags), rebalance.NewCommand(flags), undo.NewCommand(flags)},
		act:      {confirm.NewCommand(flags), rollout.NewCommand(flags), freeze.NewCommand(flags), freeze.NewUnfreezeCommand(flags), restore.NewCommand(flags)},
	} {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	root.AddCommand(version.NewCommand())
	return root
}
