package issuer

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
)

const (
	// maxConfig bounds the AuthenticationConfiguration, and maxSecret the file of the client secret.
	maxConfig = 1 << 20
	maxSecret = 4 << 10
	// maxScopes bounds the further scopes.
	maxScopes = 20
	// CallbackPath is where an issuer sends a browser back to the console.
	CallbackPath = "/console/oidc/callback"
)

// Options are what an administrator states about the sign-in by an issuer.
type Options struct {
	// URL is that of an issuer in the AuthenticationConfiguration; "": there is no sign-in by an issuer.
	URL string
	// ClientID of the console at the issuer. Default: the first audience of the issuer in the AuthenticationConfiguration.
	ClientID string
	// ClientSecretFile has the secret of the client; "": the client is public, and PKCE alone protects the code.
	ClientSecretFile string
	// Scopes that are requested besides openid.
	Scopes []string
	// Address, HOST or HOST:PORT, is the address of the console in the redirect URL; "": the one at which the browser reaches it.
	Address string
}

// ValidateOptions refuses options that would have no effect. isServed: the hub serves the console.
func (o Options) ValidateOptions(isServed bool) error {
	switch {
	case o.URL == "" && (o.ClientID != "" || o.ClientSecretFile != "" || len(o.Scopes) > 0 || o.Address != ""):
		return errors.New("--console-address and --console-oidc-* need --console-oidc-issuer")
	case o.URL != "" && !isServed:
		return errors.New("--console-oidc-issuer needs --console")
	}
	return nil
}

// settings are the checked options with what the AuthenticationConfiguration has of the issuer.
type settings struct {
	url, discoveryURL, host string
	certificateAuthority    string
	audiences               []string
	clientID, clientSecret  string
	scopes                  []string
	address                 string
}

// readSettings reads the files that the options name, and checks all.
func readSettings(o Options, authenticationConfig string) (settings, error) {
	found, err := findIssuer(authenticationConfig, o.URL)
	if err != nil {
		return settings{}, err
	}
	u, err := url.Parse(found.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return settings{}, fmt.Errorf("--console-oidc-issuer: %q is no https URL with a host", o.URL)
	}
	s := settings{
		url: found.URL, discoveryURL: found.DiscoveryURL, host: u.Host, certificateAuthority: found.CertificateAuthority, audiences: found.Audiences,
		clientID: o.ClientID, scopes: append([]string{"openid"}, o.Scopes...), address: o.Address,
	}
	if s.clientID == "" && len(s.audiences) > 0 {
		s.clientID = s.audiences[0]
	}
	if err := s.checkForm(); err != nil {
		return settings{}, err
	}
	s.clientSecret, err = readSecret(o.ClientSecretFile)
	return s, err
}

// checkForm refuses settings that no issuer and no browser takes.
func (s settings) checkForm() error {
	switch {
	case s.clientID == "":
		return errors.New("--console-oidc-client-id: the issuer has no audience in --authentication-config, so the client id must be stated")
	case len(s.scopes) > maxScopes || slices.ContainsFunc(s.scopes, isNoScope):
		return fmt.Errorf("--console-oidc-scopes: at most %d scopes, each of printable ASCII characters without spaces and quotes", maxScopes)
	case s.address != "" && !IsAddress(s.address):
		return fmt.Errorf("--console-address: %q is no HOST or HOST:PORT", s.address)
	}
	return nil
}

// findIssuer returns the issuer of the URL in an AuthenticationConfiguration.
func findIssuer(path, issuerURL string) (apiserver.Issuer, error) {
	if path == "" {
		return apiserver.Issuer{}, errors.New("--console-oidc-issuer needs --authentication-config: the hub's API accepts tokens of that issuer, and the console adds no second check")
	}
	text, err := readBounded(path, maxConfig)
	if err != nil {
		return apiserver.Issuer{}, fmt.Errorf("--authentication-config: %w", err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDecoder(), text)
	if err != nil {
		return apiserver.Issuer{}, fmt.Errorf("--authentication-config: %w", err)
	}
	config, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return apiserver.Issuer{}, fmt.Errorf("--authentication-config: %s has no AuthenticationConfiguration", path)
	}
	known := make([]string, 0, len(config.JWT))
	for _, one := range config.JWT {
		if one.Issuer.URL == issuerURL {
			return one.Issuer, nil
		}
		known = append(known, one.Issuer.URL)
	}
	return apiserver.Issuer{}, fmt.Errorf("--console-oidc-issuer: %s is no issuer in --authentication-config, which has %q", issuerURL, known)
}

func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := readBounded(path, maxSecret)
	if err != nil {
		return "", fmt.Errorf("--console-oidc-client-secret-file: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("--console-oidc-client-secret-file: %s is empty", path)
	}
	return secret, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	text, err := os.ReadFile(path)
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}

// isNoScope reports whether a text has not the form of a scope in RFC 6749.
func isNoScope(s string) bool {
	return s == "" || len(s) > 200 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

var addressForm = regexp.MustCompile(`^(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?$`)

// IsAddress reports whether a text is HOST or HOST:PORT, as in the header Host of a browser.
func IsAddress(s string) bool {
	u, err := url.Parse("https://" + s + "/")
	return addressForm.MatchString(s) && err == nil && u.Host == s
}
