// Package credential is the command `atoll credential`, by which programs that find clusters as
// ClusterProfiles log in to them: the exec plugin of KEP-5339's access provider "atoll".
//
// Contract: it prints one ExecCredential and nothing else. It gives the hub's credentials to the
// hub alone. A server at another address, or verified by another CA than the hub's, is refused
// before anything is read, so that a forged ClusterProfile steals nothing. With --service-account
// it prints a token of that ServiceAccount of the hub, which expires; otherwise the login of its
// kubeconfig. Nothing is written or cached.
package credential

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/auth/exec"

	"atoll.dev/atoll/internal/command/client"
)

type credentialOptions struct {
	flags    *client.ConnectionFlags
	account  string
	servers  []string
	lifetime time.Duration
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &credentialOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "credential",
		Short: "Log a program in that finds clusters as ClusterProfiles",
		Long: `Log a program in that finds clusters as ClusterProfiles.

It is an exec plugin of client-go, for the access provider "atoll" of each profile, in the
configuration of the program that reads them:

  {"providers": [{"name": "atoll", "execConfig": {
    "apiVersion": "client.authentication.k8s.io/v1", "command": "atoll", "args": ["credential"],
    "interactiveMode": "Never", "provideClusterInfo": true}}]}

It prints what the hub's kubeconfig logs in with, or with --service-account a token of that
ServiceAccount of the hub, for which the kubeconfig's user needs the verb create on its
serviceaccounts/token. It gives it to the hub alone: a profile is refused whose server is at
neither the kubeconfig's address nor one of --server, or that another CA than the hub's verifies.

The user needs clusters/proxy on the hub and its rights in the member, where it is called
"atoll:serviceaccount:NAMESPACE:NAME".`,
		Example: `  atoll credential --kubeconfig /etc/hub/kubeconfig --service-account kueue-system/kueue`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.Flags().StringVar(&o.account, "service-account", "", "NAMESPACE/NAME of a ServiceAccount on the hub to log in as; default: the kubeconfig's user")
	cmd.Flags().StringSliceVar(&o.servers, "server", nil, "HOST:PORT of the hub in ClusterProfiles, where the kubeconfig has another")
	cmd.Flags().DurationVar(&o.lifetime, "lifetime", time.Hour, "how long a ServiceAccount's token is good; 10m at least")
	return cmd
}

func (o *credentialOptions) run(cmd *cobra.Command) error {
	_, asked, err := exec.LoadExecCredentialFromEnv()
	if err != nil {
		return fmt.Errorf("this is an exec plugin, which a program runs for itself with provideClusterInfo: true: %w", err)
	}
	hub, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(hub.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := o.checkSameHub(asked, config); err != nil {
		return err
	}
	status, err := o.credentialStatus(cmd.Context(), hub, config)
	if err != nil {
		return err
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(&clientauthentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthentication.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   status,
	})
}

// checkSameHub returns an error unless the requested server must be the hub. It is at the hub's
// address, because the kubeconfig may hold other CAs besides. Only the hub's CA verifies it, of
// which there are two during a rotation.
func (o *credentialOptions) checkSameHub(asked, hub *rest.Config) error {
	its, hubs := parseCertificates(asked.CAData), parseCertificates(hub.CAData)
	foreign := func(der string) bool { return !slices.Contains(hubs, der) }
	switch {
	case asked.Insecure || len(its) == 0:
		return fmt.Errorf("%s: its ClusterProfile names no CA that would verify it: the hub's credentials are not for it", asked.Host)
	case len(hubs) == 0:
		return errors.New("kubeconfig: the hub's certificate-authority is missing, by which the server of a ClusterProfile is known to be the hub")
	case slices.ContainsFunc(its, foreign):
		return fmt.Errorf("%s: its ClusterProfile names another CA than the hub's kubeconfig: the hub's credentials are not for it", asked.Host)
	}
	known := slices.DeleteFunc(append([]string{serverAddress(hub.Host)}, o.servers...), func(at string) bool { return at == "" })
	if at := serverAddress(asked.Host); !slices.Contains(known, at) {
		return fmt.Errorf("%s: the hub is at %s: its credentials are not for another server; if that is the hub too, add --server %s", asked.Host, strings.Join(known, ", "), at)
	}
	return nil
}

// serverAddress returns the address of a server, with its port; "" of what is none.
func serverAddress(server string) string {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Scheme != "https":
		return ""
	case u.Port() == "":
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}

// parseCertificates returns the certificates in a PEM, as DER.
func parseCertificates(bundle []byte) (out []string) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, string(block.Bytes))
	}
	return out
}

// credentialStatus holds the credentials.
func (o *credentialOptions) credentialStatus(ctx context.Context, hub *client.Connection, config *rest.Config) (*clientauthentication.ExecCredentialStatus, error) {
	if o.account != "" {
		return o.requestToken(ctx, hub)
	}
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		raw, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		token = strings.TrimSpace(string(raw))
	}
	if token == "" && len(config.KeyData) == 0 {
		return nil, errors.New("the kubeconfig logs in with neither a token nor a client certificate: name a ServiceAccount of the hub by --service-account")
	}
	return &clientauthentication.ExecCredentialStatus{
		Token: token, ClientCertificateData: string(config.CertData), ClientKeyData: string(config.KeyData),
	}, nil
}

// requestToken requests a token of a ServiceAccount of the hub.
func (o *credentialOptions) requestToken(ctx context.Context, hub *client.Connection) (*clientauthentication.ExecCredentialStatus, error) {
	namespace, name, ok := strings.Cut(o.account, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("--service-account %s: it must be NAMESPACE/NAME", o.account)
	}
	r, err := hub.CreateToken(ctx, namespace, name, o.lifetime)
	if err != nil {
		return nil, err
	}
	return &clientauthentication.ExecCredentialStatus{Token: r.Token, ExpirationTimestamp: &r.ExpirationTimestamp}, nil
}
