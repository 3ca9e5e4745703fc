package handshake

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPushSecrets(t *testing.T) {
	c := Credentials{Server: "https://10.0.0.1:6443", Token: "hush", ProxyURL: "http://proxy:3128", ServerName: "kube"}
	s, err := NewPushSecret("oslo", "u1", c)
	if err != nil {
		t.Fatal(err)
	}
	if s.Type != PushSecretType || s.Labels[LabelPush] != "oslo" || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != "u1" {
		t.Errorf("the Secret is %+v", s.ObjectMeta)
	}
	if got, err := ParsePushSecret(s); err != nil || got != c {
		t.Errorf("read back: %v, %v", got, err)
	}
	s.Data["token"], s.Data["server"] = []byte("hush\n"), []byte(" "+c.Server+"\n") // as an editor ends lines
	if got, err := ParsePushSecret(s); err != nil || got != c {
		t.Errorf("with blanks around: %v, %v", got, err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, c); strings.Contains(text, "hush") || strings.Contains(text, "proxy") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func TestCredentialsThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		key, value, says string
	}{
		"no server":          {"server", "", "server"},
		"in the clear":       {"server", "http://10.0.0.1", "server"},
		"no host":            {"server", "https://", "server"},
		"a user in it":       {"server", "https://me:pass@10.0.0.1", "server"},
		"a query":            {"server", "https://10.0.0.1?x=y", "server"},
		"a fragment":         {"server", "https://10.0.0.1#x", "server"},
		"no token":           {"token", "", "token"},
		"a token of lines":   {"token", "a\nb", "token"},
		"no certificate":     {"ca.crt", "hello", "ca.crt"},
		"no URL for a proxy": {"proxy-url", "proxy:3128", "proxy-url"},
		"no host of a proxy": {"proxy-url", "http://", "proxy-url"},
		"no kind of proxy":   {"proxy-url", "ftp://proxy", "proxy-url"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string][]byte{"server": []byte("https://a"), "token": []byte("hush")}}
			s.Data[c.key] = []byte(c.value)
			_, err := ParsePushSecret(s)
			if err == nil || !strings.Contains(err.Error(), c.says+":") {
				t.Fatalf("%v, want one about %s", err, c.says)
			}
			if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "pass") {
				t.Errorf("%v tells a secret", err)
			}
		})
	}
}

// TestWhenATokenEnds: the expiry of a ServiceAccount's token is read from its claims.
func TestWhenATokenEnds(t *testing.T) {
	says := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
	}
	for token, want := range map[string][2]int64{
		says(`{"iat": 1000, "exp": 5000.5}`): {1000, 5000},
		says(`{"exp": 5000}`):                {0, 5000},
		says(`{"iat": 1000}`):                {1000, 0},
		says(`{"exp": -1}`):                  {},
		says(`{"exp": 1e300}`):               {},
		says(`{"exp": "soon"}`):              {},
		says(`[`):                            {},
		"e30.*.sig":                          {},
		"hush":                               {},
	} {
		issued, ends := Credentials{Token: token}.TokenEnds()
		for i, at := range []time.Time{issued, ends} {
			if at.IsZero() != (want[i] == 0) || !at.IsZero() && at.Unix() != want[i] {
				t.Errorf("%s: issued %s, ends %s", token, issued, ends)
			}
		}
	}
}
