package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/process"
	"atoll.dev/atoll/lab/realnode"
	"atoll.dev/atoll/lab/relay"
)

// dirVariable replaces --dir in the commands of a session.
const dirVariable = "ATOLL_LAB_DIR"

// dirFlag adds --dir to a command about a lab.
func dirFlag(cmd *cobra.Command, dir *string) *cobra.Command {
	cmd.Flags().StringVar(dir, "dir", os.Getenv(dirVariable), "the lab's directory; default is $"+dirVariable)
	return cmd
}

func upCommand() *cobra.Command {
	o := lab.Options{}
	cmd := &cobra.Command{
		Use:   "up --dir DIR [--members N]",
		Short: "Start a lab, or bring a stopped one back, and return when all is ready",
		Long: `Start a hub, member clusters and their agents, join them through the real
handshake, and return when all is ready. Everything keeps running until "down".

DIR then holds hub.kubeconfig, member1.kubeconfig and so on (cluster admin), with
--hubs also hub2.kubeconfig, hub3.kubeconfig, and a log per process in DIR/logs. For a directory that holds a lab already,
"up" starts what does not run, with the same ports and data.

Data survives a killed process but not a crashed machine: members do not sync
to disk.`,
		Example: `  atoll-lab up --dir /tmp/lab --members 3 --regions eu,us,asia
  atoll-lab up --dir /tmp/lab --members 6 --hubs 3       three hubs on one etcd
  atoll-lab up --dir /tmp/lab --members 1 --hubless     only a cluster, no hub
  atoll-lab up --dir /tmp/lab --members 2 --real-nodes  pods that really run, of the image ` + realnode.BusyboxImage,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			if o.Hubs < 1 {
				return fmt.Errorf("--hubs is %d: there is one at least; --hubless starts none", o.Hubs)
			}
			l, err := lab.BringUp(cmd.Context(), o)
			if err != nil {
				return err
			}
			status, err := l.ReadStatus(cmd.Context())
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), status)
		},
	}
	dirFlag(cmd, &o.Dir)
	flags := cmd.Flags()
	flags.IntVar(&o.Members, "members", 3, "number of member clusters")
	flags.IntVar(&o.Nodes, "nodes", 3, "made-up nodes per member")
	flags.BoolVar(&o.RealNodes, "real-nodes", false, "one node per member that really runs containers, with kubelet and containerd; needs root, and `make nodes`")
	flags.StringArrayVar(&o.Images, "image", nil, "directory of an OCI image layout that real nodes have, such as bin/images/atoll; may be repeated")
	flags.StringSliceVar(&o.Regions, "regions", nil, "regions, given to the members in turn")
	flags.IntVar(&o.Hubs, "hubs", 1, "number of hubs; several share an etcd of its own, and agents spread over them")
	flags.BoolVar(&o.Hubless, "hubless", false, "only member clusters: no hub, agents or links")
	flags.StringVar(&o.Binaries.Hub, "hub-binary", "", "path of atoll-hub; default: beside this program, or in $"+lab.BinDirVariable)
	flags.StringVar(&o.Binaries.Atoll, "atoll-binary", "", "path of atoll; default as above")
	flags.StringArrayVar(&o.HubArgs, "hub-arg", nil, "argument to add to the hub's command line; may be repeated")
	flags.StringArrayVar(&o.AgentArgs, "agent-arg", nil, "argument to add to every agent's command line; may be repeated")
	return cmd
}

func downCommand() *cobra.Command {
	var dir string
	var remove bool
	cmd := &cobra.Command{
		Use:   "down --dir DIR",
		Short: "End all processes of a lab; its data stays unless --delete is given",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.OpenExisting(dir)
			if err != nil {
				return err
			}
			if remove {
				return l.Delete(cmd.Context())
			}
			return l.StopAll(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&remove, "delete", false, "remove the lab's directory too")
	return dirFlag(cmd, &dir)
}

func statusCommand() *cobra.Command {
	var dir, output string
	cmd := &cobra.Command{
		Use:   "status --dir DIR",
		Short: "Show every process: whether it runs and works, its port, its link",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("-o %s is unknown; use -o json, or leave it out for a table", output)
			}
			l, err := lab.OpenExisting(dir)
			if err != nil {
				return err
			}
			status, err := l.ReadStatus(cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(status)
			}
			return printStatus(cmd.OutOrStdout(), status)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for a machine-readable form")
	return dirFlag(cmd, &dir)
}

// newComponentCommand returns a command that acts on one named component.
func newComponentCommand(use, short string, do func(*cobra.Command, *lab.Lab, string) error) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.OpenExisting(dir)
			if err != nil {
				return err
			}
			return do(cmd, l, args[0])
		},
	}
	return dirFlag(cmd, &dir)
}

// faultCommands returns the commands that break and repair components.
func faultCommands() []*cobra.Command {
	kill := newComponentCommand("kill hub|hubN|etcd|memberN|agent/memberN --dir DIR", "End a process with SIGKILL",
		func(cmd *cobra.Command, l *lab.Lab, name string) error { return l.KillComponent(cmd.Context(), name) })
	stop := newComponentCommand("stop hub|hubN|etcd|memberN|agent/memberN --dir DIR", "Signal a process to end: a hub that leads hands over first",
		func(cmd *cobra.Command, l *lab.Lab, name string) error { return l.StopComponent(cmd.Context(), name) })
	start := newComponentCommand("start hub|hubN|etcd|memberN|agent/memberN --dir DIR", "Bring a killed process back, same ports and data, and wait until it works",
		func(cmd *cobra.Command, l *lab.Lab, name string) error { return l.StartComponent(cmd.Context(), name) })
	halfOpen := false
	cut := newComponentCommand("cut memberN --dir DIR", "Cut the link between a member's agent and the hub",
		func(cmd *cobra.Command, l *lab.Lab, name string) error {
			if halfOpen {
				return l.DiscardLinkTraffic(cmd.Context(), name)
			}
			return l.CutLink(cmd.Context(), name)
		})
	cut.Flags().BoolVar(&halfOpen, "half-open", false, "swallow all bytes and leave connections established, instead of resetting and refusing them")
	heal := newComponentCommand("heal memberN --dir DIR", "Undo a cut",
		func(cmd *cobra.Command, l *lab.Lab, name string) error { return l.HealLink(cmd.Context(), name) })
	return []*cobra.Command{kill, stop, start, cut, heal}
}

// relayCommand returns the command that "up" starts once per lab.
func relayCommand() *cobra.Command {
	var dir string
	var links []string
	cmd := &cobra.Command{
		Use:    "relay --dir DIR --link NAME=LISTEN,TARGET ...",
		Short:  "Carry the links of a lab",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			specs := make([]relay.Spec, len(links))
			for i, link := range links {
				name, addresses, ok1 := strings.Cut(link, "=")
				listen, target, ok2 := strings.Cut(addresses, ",")
				if !ok1 || !ok2 {
					return fmt.Errorf("--link %q is not of the form NAME=LISTEN,TARGET", link)
				}
				specs[i] = relay.Spec{Name: name, Listen: listen, Target: target}
			}
			return relay.ServeLinks(cmd.Context(), dir, specs)
		},
	}
	cmd.Flags().StringArrayVar(&links, "link", nil, "one link; may be repeated")
	return dirFlag(cmd, &dir)
}

// printStatus prints a table for people, and below it the problems.
func printStatus(out io.Writer, status lab.Status) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSTATE\tREADY\tPID\tPORT\tLINK\tKUBECONFIG")
	var notes []string
	for _, c := range status.Components {
		ready := "no"
		if c.Ready {
			ready = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, c.State, ready, formatCountOrBlank(c.PID), formatCountOrBlank(c.Port), c.Link, c.Kubeconfig)
		switch {
		case c.State == process.Running && !c.Ready:
			notes = append(notes, fmt.Sprintf("%s: %s; log: %s", c.Name, c.Waiting, c.Log))
		case c.State != process.Running:
			notes = append(notes, fmt.Sprintf("%s does not run; bring it back with: atoll-lab start %s --dir %s", c.Name, c.Name, status.Dir))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(out, note)
	}
	return nil
}

func formatCountOrBlank(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
