package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/lab/member"
)

// memberCommand returns the command that "up" starts once per member.
func memberCommand() *cobra.Command {
	var o member.MemberOptions
	var services string
	cmd := &cobra.Command{
		Use:    "member --dir DIR --port PORT",
		Short:  "Run one member cluster in this process",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Services, err = netip.ParsePrefix(services); err != nil {
				return fmt.Errorf("--services: %w", err)
			}
			return member.RunMember(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "", "the cluster's directory (required)")
	flags.IntVar(&o.Port, "port", 0, "loopback port of the API server (required)")
	flags.StringVar(&o.Name, "name", "member", "name of the context in the kubeconfig")
	flags.IntVar(&o.Nodes, "nodes", 3, "number of made-up nodes")
	flags.StringVar(&o.Region, "region", "lab", "region label of the nodes")
	flags.StringVar(&o.NodeCPU, "node-cpu", "16", "CPU of each node")
	flags.StringVar(&o.NodeMemory, "node-memory", "64Gi", "memory of each node")
	flags.IntVar(&o.NodePods, "node-pods", 250, "pods that each node takes")
	flags.StringVar(&services, "services", "10.96.0.0/16", "range of Services' addresses")
	flags.StringVar(&o.AuditLog, "audit-log", "", "file of the API server's audit log (default: none)")
	flags.StringVar(&o.RuntimeConfig, "runtime-config", "", "API versions that the API server serves or not, as its own flag states them")
	return cmd
}

// etcdCommand returns the command that runs an etcd for several hubs.
func etcdCommand() *cobra.Command {
	var dir, address string
	var port int
	cmd := &cobra.Command{
		Use:   "etcd --dir DIR --port PORT",
		Short: "Run a plain etcd in this process, for several hubs to share",
		Long: `Run a plain etcd in this process, until it is interrupted, for several hubs to
share. It takes only clients that show DIR/client.crt:

  atoll-hub --data-dir A --etcd-servers https://127.0.0.1:PORT \
    --etcd-cafile DIR/ca.crt --etcd-certfile DIR/client.crt --etcd-keyfile DIR/client.key

Data survives a killed process but not a crashed machine.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return member.RunSharedEtcd(cmd.Context(), dir, address, port)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the etcd's directory (required)")
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "IP address of this machine to listen on; a hub in a pod of the lab needs its node's")
	cmd.Flags().IntVar(&port, "port", 0, "port for clients (required)")
	return cmd
}
