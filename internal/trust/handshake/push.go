package handshake

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

// PushSecretType is the type of the Secrets in atoll-system with which the hub reaches members
// whose agents it runs itself. Secrets of this type are never placed.
const PushSecretType corev1.SecretType = "atoll.dev/push"

// LabelPush is on every such Secret; its value is the Cluster's name.
const LabelPush = "atoll.dev/push"

// Keys of the Secret's data.
const (
	dataServer     = "server"
	dataCA         = corev1.ServiceAccountRootCAKey
	dataToken      = corev1.ServiceAccountTokenKey
	dataProxy      = "proxy-url"
	dataServerName = "tls-server-name"
)

// Credentials are what the hub needs to reach a member's API. They are comparable with ==.
type Credentials struct {
	// Server is the https URL of the member's API, as the hub dials it.
	Server string
	// CA holds the certificates in PEM that verify the server. Default: those of the hub's machine.
	CA string
	// Token is that of the agent's ServiceAccount in the member.
	Token string
	// ProxyURL is that of an HTTP or SOCKS5 proxy to the server. Default: the proxy that the hub's
	// environment sets for the server.
	ProxyURL string
	// ServerName is the name in the server's certificate. Default: the host of Server.
	ServerName string
}

// TokenEnds returns when the token was issued and when it expires, from its claims. A time that
// the token does not state is zero: long-lived tokens do not expire.
func (c Credentials) TokenEnds() (issued, ends time.Time) {
	parts := strings.Split(c.Token, ".")
	if len(parts) != 3 {
		return issued, ends
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return issued, ends
	}
	var claims struct{ Iat, Exp float64 }
	if json.Unmarshal(payload, &claims) != nil {
		return issued, ends
	}
	for at, seconds := range map[*time.Time]float64{&issued: claims.Iat, &ends: claims.Exp} {
		if seconds > 0 && seconds < math.MaxInt32*100 {
			*at = time.Unix(int64(seconds), 0)
		}
	}
	return issued, ends
}

// Format prints the credentials without the token and without the proxy's URL, which may hold a
// password.
func (c Credentials) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "credentials for %s", c.Server) }

// Validate returns an error that lists what is wrong with the credentials, without their
// secrets.
func (c Credentials) Validate() error {
	var errs []error
	if !isServerURL(c.Server) {
		errs = append(errs, fmt.Errorf("%s: it is no URL such as https://10.0.0.1:6443", dataServer))
	}
	if c.Token == "" || strings.ContainsAny(c.Token, " \t\r\n") {
		errs = append(errs, fmt.Errorf("%s: it is no token of a ServiceAccount", dataToken))
	}
	if len(c.CA) > 0 {
		if _, err := trust.PoolFromPEM([]byte(c.CA)); err != nil {
			errs = append(errs, fmt.Errorf("%s: there is no certificate in it", dataCA))
		}
	}
	if c.ProxyURL != "" && !isProxyURL(c.ProxyURL) {
		errs = append(errs, fmt.Errorf("%s: it is no URL of a proxy of the kinds http, https or socks5", dataProxy))
	}
	return errors.Join(errs...)
}

// isServerURL reports whether s is an https URL without a user, a query or a fragment.
func isServerURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// isProxyURL reports whether s is the URL of a proxy that Go's dialer supports.
func isProxyURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && slices.Contains([]string{"http", "https", "socks5"}, u.Scheme)
}

// NewPushSecret returns a Secret with the credentials of a Cluster's member. Its name is
// generated, and the Cluster owns it.
func NewPushSecret(cluster string, uid types.UID, c Credentials) (*corev1.Secret, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("credentials of cluster %s: %w", cluster, err)
	}
	data := map[string][]byte{dataServer: []byte(c.Server), dataToken: []byte(c.Token)}
	for key, value := range map[string]string{dataCA: c.CA, dataProxy: c.ProxyURL, dataServerName: c.ServerName} {
		if value != "" {
			data[key] = []byte(value)
		}
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: atoll.SystemNamespace, GenerateName: "push-" + cluster + "-",
			Labels:          map[string]string{LabelPush: cluster},
			OwnerReferences: []metav1.OwnerReference{PushOwner(cluster, uid)},
		},
		Type: PushSecretType, Data: data,
	}, nil
}

// PushOwner returns the owner reference by which a Secret is deleted with its Cluster.
func PushOwner(cluster string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: uid}
}

// ParsePushSecret decodes a Secret that NewPushSecret or an administrator wrote.
func ParsePushSecret(s *corev1.Secret) (Credentials, error) {
	text := func(key string) string { return strings.TrimSpace(string(s.Data[key])) }
	c := Credentials{
		Server: text(dataServer), CA: string(s.Data[dataCA]), Token: text(dataToken),
		ProxyURL: text(dataProxy), ServerName: text(dataServerName),
	}
	if err := c.Validate(); err != nil {
		return Credentials{}, err
	}
	return c, nil
}
