package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// MinLifetime of a token is what the API gives at least; DefaultLifetime is that of those
// in the kubeconfigs that are handed out.
const (
	MinLifetime     = 10 * time.Minute
	DefaultLifetime = 30 * 24 * time.Hour
)

// Access is the content of a kubeconfig for another user.
type Access struct {
	// Name of the context and of the user.
	Name string
	// Namespace of the context; empty: none.
	Namespace string
	// Account is a ServiceAccount in the hub's own namespace, where holders of its token cannot
	// make further ones of it, and no placement finds it.
	Account string
	// Lifetime of the token.
	Lifetime time.Duration
	// Server is the hub's address; empty: as in the caller's kubeconfig.
	Server string
}

// CreateToken makes a new token of a ServiceAccount.
func (c *Connection) CreateToken(ctx context.Context, namespace, account string, lifetime time.Duration) (*authenticationv1.TokenRequestStatus, error) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": authenticationv1.SchemeGroupVersion.String(), "kind": "TokenRequest",
		"metadata": map[string]any{"name": account, "namespace": namespace},
		"spec":     map[string]any{"expirationSeconds": int64(lifetime / time.Second)},
	}}
	made, err := c.Dynamic.Resource(ServiceAccounts).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{}, "token")
	if err != nil {
		return nil, c.ExplainError(err)
	}
	t, err := ConvertTo[authenticationv1.TokenRequest](made)
	if err != nil {
		return nil, err
	}
	return &t.Status, nil
}

// IssueKubeconfig makes a new token and gives a kubeconfig with it, with the hub's address and CA
// as in that of the caller, and returns until when it is good.
func (c *Connection) IssueKubeconfig(ctx context.Context, a Access) (kubeconfig []byte, until time.Time, err error) {
	token, err := c.CreateToken(ctx, atoll.SystemNamespace, a.Account, a.Lifetime)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("make the token of %s: %w", a.Name, err)
	}
	tls := c.Config.TLSClientConfig
	ca := tls.CAData
	if len(ca) == 0 && tls.CAFile != "" {
		if ca, err = os.ReadFile(tls.CAFile); err != nil {
			return nil, time.Time{}, fmt.Errorf("read the hub's CA for the kubeconfig of %s: %w", a.Name, err)
		}
	}
	if a.Server == "" {
		a.Server = c.Config.Host
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: a.Server, CertificateAuthorityData: ca, TLSServerName: tls.ServerName, InsecureSkipTLSVerify: tls.Insecure}
	config.AuthInfos[a.Name] = &clientcmdapi.AuthInfo{Token: token.Token}
	config.Contexts[a.Name] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: a.Name, Namespace: a.Namespace}
	config.CurrentContext = a.Name
	kubeconfig, err = clientcmd.Write(*config)
	return kubeconfig, token.ExpirationTimestamp.Time, err
}

// CheckTokenLifetime returns an error for a lifetime below MinLifetime.
func CheckTokenLifetime(lifetime time.Duration) error {
	if lifetime < MinLifetime {
		return fmt.Errorf("--lifetime is %s: it must be at least %s", lifetime, phrase.FormatDuration(MinLifetime))
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig to a file that only its owner may read, or to out where the
// file is "-". It returns where the file is; empty: it went to out.
func WriteKubeconfig(out io.Writer, file, name string, kubeconfig []byte) (string, error) {
	if file == "-" {
		_, err := out.Write(kubeconfig)
		return "", err
	}
	if file == "" {
		file = name + ".kubeconfig"
	}
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return "", fmt.Errorf("write the kubeconfig: %w", err)
	}
	return file, nil
}

// ForceApply creates a labelled object, or brings it up to date: by server-side apply, with force
// against other managers.
func (c *Connection) ForceApply(ctx context.Context, of, manager string, resource schema.GroupVersionResource, o *unstructured.Unstructured) error {
	_, err := c.Dynamic.Resource(resource).Namespace(o.GetNamespace()).
		Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("make %s %s of %s: %w", o.GetKind(), o.GetName(), of, c.ExplainError(err))
	}
	return nil
}
