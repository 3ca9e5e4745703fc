package main

import (
	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/lab/member"
)

// memberCommand is what "up" starts once per member.
func memberCommand() *cobra.Command {
	var o member.Options
	cmd := &cobra.Command{
		Use:    "member --dir DIR --port PORT",
		Short:  "Run one member cluster in this process",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return member.Run(cmd.Context(), o) },
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
	flags.StringVar(&o.AuditLog, "audit-log", "", "file of the API server's audit log (default: none)")
	return cmd
}

// etcdCommand runs what hubs share.
func etcdCommand() *cobra.Command {
	var dir string
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
		RunE: func(cmd *cobra.Command, _ []string) error { return member.RunStore(cmd.Context(), dir, port) },
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the etcd's directory (required)")
	cmd.Flags().IntVar(&port, "port", 0, "loopback port for clients (required)")
	return cmd
}
