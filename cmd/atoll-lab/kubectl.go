package main

import (
	"os"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins that a kubeconfig may name
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// kubectl is upstream's command with args as they are; it ends the process
// with upstream's exit code when that is not 0.
func kubectl(args []string) {
	os.Args = append([]string{"kubectl"}, args...)
	// The command tree logs while it is built (plugins, preferences), before
	// it parses its own verbosity. A bad value is reported by that parse.
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err)
	}
}

// kubectlUsage only lists kubectl in the help: main hands the arguments over
// before anything here could parse them.
func kubectlUsage() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [arguments of kubectl]",
		Short:              "kubectl, built in: same arguments, same exit codes",
		DisableFlagParsing: true,
		Run:                func(_ *cobra.Command, args []string) { kubectl(args) },
	}
}
