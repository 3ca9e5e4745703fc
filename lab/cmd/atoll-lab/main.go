// Command atoll-lab runs real Kubernetes clusters on one machine, joins them to a hub, and
// breaks them on request. It is a thin shell over package lab.
//
// One binary is every part of a lab: the commands that people type, each member cluster,
// the relay of the links, and kubectl.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"atoll.dev/atoll/internal/profile"
	"atoll.dev/atoll/lab/attack"
	"atoll.dev/atoll/lab/attack/hostilehub"
	"atoll.dev/atoll/lab/bench"
	"atoll.dev/atoll/lab/corpus"
	"atoll.dev/atoll/lab/demo"
	"atoll.dev/atoll/lab/fleet"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "kubectl" {
		runKubectl(os.Args[2:])
		return
	}
	// Linked components add flags of their own to the global set.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	// SIGHUP ends the program like an interrupt: in order, with its processes.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-lab: "+err.Error())
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "atoll-lab",
		Short: "Real Kubernetes clusters on this machine, to try Atoll on and to break",
		Long: `atoll-lab runs real Kubernetes clusters on this machine: etcd, API server,
controllers and scheduler are the upstream ones, each cluster in a process of
its own; only the nodes are made up, so pods turn Running without a container.
Everything listens on loopback, lives in one directory and needs no network.

  atoll-lab up --dir /tmp/lab --members 3          start a hub and three clusters, joined
  atoll-lab status --dir /tmp/lab                  what runs, on which ports
  atoll-lab kubectl --kubeconfig /tmp/lab/member1.kubeconfig get nodes
  atoll-lab kill member1 --dir /tmp/lab            SIGKILL; "start member1" brings it back
  atoll-lab cut member2 --dir /tmp/lab             take its link to the hub away; "heal" gives it back
  atoll-lab down --dir /tmp/lab                    end everything`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), kubectlCommand(), versionCommand(), memberCommand(), nodeCommand(), etcdCommand(), relayCommand())
	root.AddCommand(faultCommands()...)
	for _, c := range fleet.NewFleetCommands() {
		root.AddCommand(profile.AddProfileFlag(c))
	}
	root.AddCommand(demo.NewCommand(), bench.NewCommand(), attack.NewAttackCommand(), hostilehub.NewCommand(), corpus.NewCommand())
	return root
}
