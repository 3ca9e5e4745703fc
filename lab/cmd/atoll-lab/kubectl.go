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

// runKubectl runs upstream's command with args. If its exit code is not 0, it ends the
// process with that code.
func runKubectl(args []string) {
	os.Args = append([]string{"kubectl"}, args...)
	// The command tree logs while it is built (plugins, preferences), before it parses its own
	// verbosity. This parse reports a bad value.
	_, _ = logs.GlogSetter(kubectlcmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err)
	}
}

// kubectlCommand lists kubectl in the help: main passes the arguments on before they are
// parsed here.
func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [arguments of kubectl]",
		Short:              "kubectl, built in: same arguments, same exit codes",
		DisableFlagParsing: true,
		Run:                func(_ *cobra.Command, args []string) { runKubectl(args) },
	}
}
