package token_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/token"
	"atoll.dev/atoll/internal/trust"
)

const (
	info    = "namespaces/atoll-system/configmaps/hub-info"
	secrets = "namespaces/atoll-system/secrets/"
)

var caHash = "sha256:" + strings.Repeat("0f", 32)

func run(t *testing.T, h http.Handler, args ...string) (out string, err error) {
	t.Helper()
	return clienttest.RunForOutput(t, h, token.NewCommand, args...)
}

func newHub(t *testing.T) *clienttest.FakeHub {
	return clienttest.NewFakeHub(t, map[string]string{info: fmt.Sprintf("data: {gateway: \"hub.example:7443\", caHash: %q}", caHash)})
}

// The token is printed, and the hub stores nothing from which it could be read.
func TestATokenIsShownOnce(t *testing.T) {
	h := newHub(t)
	out, err := run(t, h, "create", "-o", "raw")
	if err != nil {
		t.Fatal(err)
	}
	made, err := trust.ParseToken(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("%q is printed: %v", out, err)
	}
	if got, want := h.Writes(), []string{"post " + secrets + "join-token-" + made.ID}; !slices.Equal(got, want) {
		t.Fatalf("writes %q, want %q", got, want)
	}
	stored, err := json.Marshal(h.Object(secrets + "join-token-" + made.ID))
	if err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(made.RevealSecret(), made.ID)
	secret = strings.Trim(secret, ".")
	if secret == "" || strings.Contains(string(stored), secret) || strings.Contains(string(stored), base64.StdEncoding.EncodeToString([]byte(secret))) {
		t.Errorf("the secret %q can be read on the hub: %s", secret, stored)
	}
	for _, args := range [][]string{{"list"}, {"list", "-o", "json"}} {
		if out, err := run(t, h, args...); err != nil || strings.Contains(out, secret) || !strings.Contains(out, made.ID) {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

func TestTheInvitationNamesTheHub(t *testing.T) {
	out, err := run(t, newHub(t), "create", "-o", "json")
	var got token.Invitation
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Hub != "hub.example:7443" || got.CAHash != caHash || got.Token == "" {
		t.Errorf("%v: %s", err, out)
	}
	for args, want := range map[string][]string{
		"create":                        {"Token for 1 cluster, good for 24h0m0s.", "--hub hub.example:7443", "--ca-hash " + caHash, "--token-file -\n", "atoll accept NAME"},
		"create --uses 3 --auto-accept": {"Token for 3 clusters,", "let in without further ado"},
	} {
		out, err := run(t, newHub(t), strings.Fields(args)...)
		for _, words := range want {
			if err != nil || !strings.Contains(out, words) {
				t.Errorf("%s: %v: %q is not in %s", args, err, words, out)
			}
		}
		if strings.Contains(args, "auto-accept") == strings.Contains(out, "atoll accept NAME") {
			t.Errorf("%s: %s", args, out)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		want string
	}{
		"no lifetime":         {"--ttl 0s", "the lifetime must be positive"},
		"no uses":             {"--uses 0", "at least 1"},
		"a malformed pattern": {"--name-pattern [", `the name pattern "[" is malformed`},
		"a malformed label":   {"--labels a=b/c", "the label a=b/c is malformed"},
		"a malformed set":     {"--set a/b", `the set "a/b" is malformed`},
		"a short check-in":    {"--check-in 9s", "from 10s"},
		"a long check-in":     {"--check-in 25h", "from 10s"},
		"another format":      {"-o xml", "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			if out, err := run(t, h, append([]string{"create"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("%q, %v, want %q", out, err, c.want)
			}
			if writes := h.Writes(); len(writes) > 0 {
				t.Errorf("it writes %q", writes)
			}
		})
	}
	for name, data := range map[string]string{
		"without an address": fmt.Sprintf("data: {caHash: %q}", caHash),
		"without a CA":       "data: {gateway: \"hub.example:7443\"}",
		"with another hash":  "data: {gateway: \"hub.example:7443\", caHash: abc}",
	} {
		h := clienttest.NewFakeHub(t, map[string]string{info: data})
		if _, err := run(t, h, "create"); err == nil || !strings.Contains(err.Error(), "lacks gateway or caHash") || len(h.Writes()) > 0 {
			t.Errorf("a hub %s: %v, %q", name, err, h.Writes())
		}
	}
}

// A hub that starts up publishes its address a moment later.
func TestCreateWaitsForAStartingHub(t *testing.T) {
	h := clienttest.NewFakeHub(t, nil)
	reads := 0
	h.OnRequest = func(r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/hub-info") {
			return
		}
		if reads++; reads == 2 {
			h.Put(t, info, fmt.Sprintf("data: {gateway: \"hub.example:7443\", caHash: %q}", caHash))
		}
	}
	if out, err := run(t, h, "create", "-o", "raw"); err != nil || out == "" || reads != 2 {
		t.Errorf("%q, %v after %d reads", out, err, reads)
	}
}

func TestDeleteTakesTokensBack(t *testing.T) {
	made := trust.NewToken()
	h := newHub(t)
	h.Put(t, secrets+"join-token-"+made.ID, "{}")
	h.Put(t, secrets+"join-token-other", "{}")
	out, err := run(t, h, "delete", made.RevealSecret(), "other")
	if want := []string{"delete " + secrets + "join-token-" + made.ID, "delete " + secrets + "join-token-other"}; err != nil || !slices.Equal(h.Writes(), want) {
		t.Errorf("%v: writes %q, want %q", err, h.Writes(), want)
	}
	if strings.Contains(out, made.RevealSecret()) || !strings.Contains(out, "token "+made.ID+" deleted") {
		t.Errorf("it prints %q", out)
	}
	if _, err := run(t, h, "delete", "gone"); err == nil || !strings.Contains(err.Error(), `no token "gone"`) {
		t.Errorf("of one that is not there: %v", err)
	}
}

func TestListSaysWhatIsLeft(t *testing.T) {
	h := newHub(t)
	if out, err := run(t, h, "list"); err != nil || !strings.Contains(out, "no tokens") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := run(t, h, "create", "--uses", "7", "--ttl", "1h", "--check-in", "15m", "--set", "asia", "--name-pattern", "shop-*"); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, h, "list", "-o", "json")
	var got []struct {
		UsesLeft                  int
		Expires                   time.Time
		NamePattern, Set, CheckIn string
		AutoAccept                bool
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if l := got[0]; l.UsesLeft != 7 || l.NamePattern != "shop-*" || l.Set != "asia" || l.CheckIn != "15m" || l.AutoAccept || time.Until(l.Expires) > time.Hour || time.Until(l.Expires) < 50*time.Minute {
		t.Errorf("listed %+v", l)
	}
	if out, err := run(t, h, "list"); err != nil || !strings.Contains(out, "USES LEFT") || strings.Contains(out, "expired") {
		t.Errorf("%v: %s", err, out)
	}
}
