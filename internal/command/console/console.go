// Package console is the command `atoll console`: it opens the hub's web console in a browser, signed in as the person of
// the kubeconfig.
//
// Contract: the credentials of the kubeconfig go to the hub alone. The link has a one-time code in its fragment, which
// no browser sends and no server logs.
package console

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
)

type options struct {
	noBrowser, addressOnly bool
	lifetime               time.Duration
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the hub's web console, signed in",
		Long: `Open the hub's web console in the browser, signed in as the user of the kubeconfig.

The hub gives a one-time code for the credentials of the kubeconfig: a token, a client
certificate, or what a credential plugin returns. The link has the code. The page shows as which
user it signs in, and does so after a click. A code works once, for a minute.

The session has the same credentials, so it has the rights of its user and ends with them, after
12 hours at the latest.`,
		Example: `  atoll console
  atoll console --no-browser --lifetime 5m
  atoll console --address`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runConsole(cmd, flags, o) },
	}
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "print the link, and open no browser")
	cmd.Flags().BoolVar(&o.addressOnly, "address", false, "print the address of the console alone, without a code and without a request")
	cmd.Flags().DurationVar(&o.lifetime, "lifetime", atoll.ConsoleCodeTime, "how long the link is good until it is used, at most 10m")
	cmd.MarkFlagsMutuallyExclusive("address", "no-browser")
	cmd.MarkFlagsMutuallyExclusive("address", "lifetime")
	return cmd
}

func runConsole(cmd *cobra.Command, flags *client.ConnectionFlags, o options) error {
	if o.lifetime < time.Second || o.lifetime > atoll.MaxConsoleCodeTime {
		return fmt.Errorf("--lifetime is %s: it is from 1s to %s", o.lifetime, phrase.FormatDuration(atoll.MaxConsoleCodeTime))
	}
	c, err := flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	address, err := consoleAddress(c.Config.Host)
	if err != nil {
		return err
	}
	if o.addressOnly {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), address)
		return err
	}
	code, err := requestCode(cmd.Context(), c, o.lifetime)
	if err != nil {
		return err
	}
	notes := cmd.ErrOrStderr()
	if err := printCertificateHint(notes, c.Config, code.fingerprint); err != nil {
		return err
	}
	link := address.String() + "#code=" + code.text
	if !o.noBrowser {
		err := openBrowser(cmd.Context(), link)
		if err == nil {
			_, err = fmt.Fprintf(notes, "The browser opens %s. Sign in there as %s.\n", address, code.user)
			return err
		}
		if !errors.Is(err, errNoBrowser) {
			fmt.Fprintf(notes, "The browser did not open: %v.\n", err)
		}
	}
	return printLink(cmd.OutOrStdout(), notes, link, code)
}

// printLink prints the link alone to out, so that a script can read it.
func printLink(out, notes io.Writer, link string, code oneTimeCode) error {
	_, err := fmt.Fprintf(notes, "This link signs a browser in as %s, once, until %s. Give it to no other person.\n", code.user, phrase.FormatTime(code.until))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, link)
	return err
}

// consoleAddress returns the address of the console of a hub.
func consoleAddress(hub string) (*url.URL, error) {
	u, err := url.Parse(hub)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the kubeconfig has no address of a hub: its server is %q", hub)
	}
	return u.JoinPath("console/"), nil
}
