package handshake

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

// PushSecretType of the Secrets in atoll-system by which the hub reaches members whose
// agents it runs itself. Nothing places a Secret of this type.
const PushSecretType corev1.SecretType = "atoll.dev/push"

// LabelPush is on every such Secret; its value is the Cluster's name.
const LabelPush = "atoll.dev/push"

// Keys of such a Secret.
const (
	dataServer     = "server"
	dataCA         = corev1.ServiceAccountRootCAKey
	dataToken      = corev1.ServiceAccountTokenKey
	dataProxy      = "proxy-url"
	dataServerName = "tls-server-name"
)

// Credentials by which the hub reaches a member's API. Equal ones are ==.
type Credentials struct {
	// Server is the https URL of the member's API, as the hub dials it.
	Server string
	// CA certificates in PEM by which the server is verified. Default: those of the hub's
	// machine.
	CA string
	// Token of the ServiceAccount that the agent is in the member.
	Token string
	// ProxyURL of the HTTP or SOCKS5 proxy that leads there. Default: what the hub's
	// environment names for the server.
	ProxyURL string
	// ServerName in the server's certificate. Default: the host of Server.
	ServerName string
}

// TokenEnds is when the token is not good any more, and when it was issued, as it says itself;
// zero where it does not say: long-lived tokens have no end.
func (c Credentials) TokenEnds() (issued, ends time.Time) {
	parts := strings.Split(c.Token, ".")
	if len(parts) != 3 {
		return issued, ends
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return issued, ends
	}
	var said struct{ Iat, Exp float64 }
	if json.Unmarshal(payload, &said) != nil {
		return issued, ends
	}
	for at, seconds := range map[*time.Time]float64{&issued: said.Iat, &ends: said.Exp} {
		if seconds > 0 && seconds < math.MaxInt32*100 {
			*at = time.Unix(int64(seconds), 0)
		}
	}
	return issued, ends
}

// Format makes fmt's verbs leave the token, and what a proxy's URL may hold, out.
func (c Credentials) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "credentials for %s", c.Server) }

// Validate says what is wrong with the credentials, without repeating secrets.
func (c Credentials) Validate() error {
	var errs []error
	if u, err := url.Parse(c.Server); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
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
	if c.ProxyURL != "" {
		u, err := url.Parse(c.ProxyURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
			errs = append(errs, fmt.Errorf("%s: it is no URL of a proxy of the kinds http, https or socks5", dataProxy))
		}
	}
	return errors.Join(errs...)
}

// NewPushSecret stores credentials of the member that the Cluster is. It gets a name of
// its own, and goes with the Cluster.
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

// PushOwner makes a Secret go with its Cluster.
func PushOwner(cluster string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: uid}
}

// ParsePushSecret reads what NewPushSecret, or an administrator, wrote.
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
