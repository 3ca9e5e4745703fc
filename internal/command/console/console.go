// Package console is the command `atoll console`: the address of the hub's web console.
//
// Contract: it makes no connection, and prints no credentials.
package console

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/command/client"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "console",
		Short: "Print the address of the hub's web console",
		Long: `Print the address of the hub's web console, and how to sign in there with the credentials of
the kubeconfig. The console shows what the rights of its user on the hub allow.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			address, err := consoleAddress(c.Config.Host)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), describeSignIn(c.Config))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), address)
			return err
		},
	}
}

// consoleAddress returns the address of the console of a hub.
func consoleAddress(hub string) (string, error) {
	u, err := url.Parse(hub)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the kubeconfig has no address of a hub: its server is %q", hub)
	}
	return u.JoinPath("console/").String(), nil
}

// describeSignIn returns how the user of the kubeconfig signs in.
func describeSignIn(c *rest.Config) string {
	switch {
	case c.BearerToken != "" || c.BearerTokenFile != "":
		return "Sign in with the token of this kubeconfig: paste the token or the whole file."
	case c.ExecProvider != nil:
		return "The kubeconfig gets its token from the program " + c.ExecProvider.Command + ": run it, and sign in with the token."
	}
	return "The console takes tokens, and this kubeconfig has a client certificate. Create a token: kubectl create token NAME -n NAMESPACE"
}
