package issuer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const config = `
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: "https://one.example", audiences: [first, second]}
  claimMappings: {username: {claim: sub, prefix: ""}}
- issuer: {url: "https://two.example/realms/x", audiences: [atoll], discoveryURL: "https://inner.example/x"}
  claimMappings: {username: {claim: sub, prefix: ""}}
- issuer: {url: "http://plain.example", audiences: [atoll]}
  claimMappings: {username: {claim: sub, prefix: ""}}
- issuer: {url: "https://ca.example", audiences: [atoll], certificateAuthority: none}
  claimMappings: {username: {claim: sub, prefix: ""}}
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOptionsThatAreRefused(t *testing.T) {
	path := writeFile(t, config)
	for name, c := range map[string]struct {
		options Options
		path    string
		want    string
	}{
		"no file":             {Options{URL: "https://one.example"}, "", "needs --authentication-config"},
		"a missing file":      {Options{URL: "https://one.example"}, path + "-none", "--authentication-config"},
		"another file":        {Options{URL: "https://one.example"}, writeFile(t, "kind: AuthorizationConfiguration\napiVersion: apiserver.config.k8s.io/v1\n"), "has no AuthenticationConfiguration"},
		"a huge file":         {Options{URL: "https://one.example"}, writeFile(t, strings.Repeat("#", maxConfig+1)), "more than"},
		"another issuer":      {Options{URL: "https://one.example/"}, path, `"https://two.example/realms/x"`},
		"an issuer of HTTP":   {Options{URL: "http://plain.example"}, path, "no https URL"},
		"no certificate":      {Options{URL: "https://ca.example"}, path, "certificateAuthority"},
		"a scope with spaces": {Options{URL: "https://one.example", Scopes: []string{"a b"}}, path, "--console-oidc-scopes"},
		"an empty scope":      {Options{URL: "https://one.example", Scopes: []string{""}}, path, "--console-oidc-scopes"},
		"many scopes":         {Options{URL: "https://one.example", Scopes: make([]string, maxScopes+1)}, path, "--console-oidc-scopes"},
		"a URL as address":    {Options{URL: "https://one.example", Address: "https://a.example"}, path, "--console-address"},
		"no secret":           {Options{URL: "https://one.example", ClientSecretFile: path + "-none"}, path, "--console-oidc-client-secret-file"},
		"an empty secret":     {Options{URL: "https://one.example", ClientSecretFile: writeFile(t, "\n")}, path, "is empty"},
	} {
		if _, err := NewClient(c.options, c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSettingsOfAnIssuer(t *testing.T) {
	c, err := NewClient(Options{URL: "https://two.example/realms/x", ClientSecretFile: writeFile(t, " s3cret\n"), Scopes: []string{"groups"}, Address: "atoll.example:443"}, writeFile(t, config))
	if err != nil {
		t.Fatal(err)
	}
	s := c.settings
	if s.clientID != "atoll" || s.clientSecret != "s3cret" || strings.Join(s.scopes, " ") != "openid groups" || s.discoveryURL != "https://inner.example/x" || c.Host() != "two.example" || c.Address() != "atoll.example:443" {
		t.Errorf("the settings are %+v", s)
	}
	if c, err = NewClient(Options{URL: "https://one.example", ClientID: "console"}, writeFile(t, config)); err != nil || c.settings.clientID != "console" || strings.Join(c.settings.audiences, " ") != "first second" {
		t.Errorf("the settings are %+v, %v", c.settings, err)
	}
}

// A token has to be made for the console's client, and for an audience that the hub's API accepts.
func TestAudiences(t *testing.T) {
	c := &Client{settings: settings{clientID: "console", audiences: []string{"atoll", "console"}}}
	for _, row := range []struct {
		audience string
		party    string
		want     bool
	}{
		{"console", "", true}, {"console", "console", true}, {"atoll", "console", true}, {"atoll", "", false}, {"console", "shop", false}, {"shop", "console", false}, {"", "console", false},
	} {
		if got := c.isForConsole(strings.Fields(row.audience), row.party); got != row.want {
			t.Errorf("audience %q, party %q: %v", row.audience, row.party, got)
		}
	}
}

func TestOptionsWithoutEffect(t *testing.T) {
	for _, c := range []struct {
		options  Options
		isServed bool
		fails    bool
	}{
		{Options{}, true, false}, {Options{}, false, false}, {Options{URL: "https://one.example"}, true, false}, {Options{URL: "https://one.example"}, false, true},
		{Options{ClientID: "x"}, true, true}, {Options{ClientSecretFile: "x"}, true, true}, {Options{Scopes: []string{"x"}}, true, true}, {Options{Address: "x"}, true, true},
	} {
		if err := c.options.ValidateOptions(c.isServed); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"hub.example": true, "hub.example:6443": true, "10.0.0.1:6443": true, "[::1]:6443": true, "[fe80::1]": true, "a_b": true,
		"": false, "hub.example/": false, "a@b": false, "a b": false, "https://a": false, "a:b": false, "a:6443:1": false, "a?b": false, "a#b": false, "::1": false, "[hub]": false, "ключ": false, strings.Repeat("a", 300): false,
	} {
		if got := IsAddress(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The words of an issuer are short and escaped.
func TestDescribeRefusal(t *testing.T) {
	f := DescribeRefusal("access_denied", "<script>\u202e\x00"+strings.Repeat("é", 300))
	if f.Kind != Refused || len(f.Message) > 900 || strings.ContainsFunc(f.Message, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%d %s", len(f.Message), f.Message)
	}
}
