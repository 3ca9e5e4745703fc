package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and those of the upstream parts that are linked in",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return fmt.Errorf("this binary carries no build information; build it with go build")
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "atoll-lab %s\n", info.Main.Version)
			parts := map[string]string{
				"k8s.io/kubernetes":         "Kubernetes",
				"k8s.io/kubectl":            "kubectl",
				"go.etcd.io/etcd/server/v3": "etcd",
				"sigs.k8s.io/kwok":          "kwok",
			}
			for _, dep := range info.Deps {
				if name, shown := parts[dep.Path]; shown {
					fmt.Fprintf(out, "%s %s\n", name, dep.Version)
				}
			}
			return nil
		},
	}
}
