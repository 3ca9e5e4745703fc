package main

import (
	"github.com/spf13/cobra"

	"atoll.dev/atoll/lab/realnode"
)

// nodeCommand returns the command that "up --real-nodes" starts once per member.
func nodeCommand() *cobra.Command {
	var o realnode.NodeOptions
	cmd := &cobra.Command{
		Use:    "node --dir DIR --kubeconfig MEMBER --ca FILE --port PORT --programs DIR",
		Short:  "Run a node of a member that really runs containers",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return realnode.Run(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "", "the node's directory (required)")
	flags.StringVar(&o.Name, "name", "node-1", "name of the node")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the member (required)")
	flags.StringVar(&o.CAFile, "ca", "", "authority of the member's clients (required)")
	flags.IntVar(&o.Port, "port", 0, "port of the member's API server, from which the node's addresses follow (required)")
	flags.StringVar(&o.Region, "region", "", "region label of the node")
	flags.StringArrayVar(&o.Images, "image", nil, "directory of an OCI image layout to load; may be repeated")
	flags.StringVar(&o.Programs, "programs", "", "directory of kubelet, containerd and so on (required)")
	return cmd
}
