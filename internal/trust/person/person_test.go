package person

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

func TestWhoPeopleAreInMembers(t *testing.T) {
	for _, c := range []struct {
		what   string
		name   string
		groups []string
		want   string
		in     []string
		refuse string // a part of the error
	}{
		{what: "a person", name: "jane@example.com", groups: []string{"dev", "system:authenticated"}, want: "jane@example.com", in: []string{"dev"}},
		{what: "an administrator", name: "atoll-admin", groups: []string{"system:masters", "system:authenticated"}, want: "atoll-admin", in: []string{"atoll:masters"}},
		{what: "an administrator with a system name", name: "system:admin", groups: []string{"system:masters"}, want: "atoll:admin", in: []string{"atoll:masters"}},
		{what: "a ServiceAccount", name: "system:serviceaccount:shop:ci", groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"},
			want: "atoll:serviceaccount:shop:ci", in: []string{"atoll:serviceaccounts", "atoll:serviceaccounts:shop"}},
		{what: "a tenant's ServiceAccount", name: "system:serviceaccount:atoll-system:tenant-shop", groups: []string{"system:serviceaccounts", "system:serviceaccounts:atoll-system", "system:authenticated"},
			want: "atoll:serviceaccount:atoll-system:tenant-shop", in: []string{"atoll:serviceaccounts"}},
		{what: "a ServiceAccount of a system namespace", name: "system:serviceaccount:kube-system:x", groups: []string{"system:serviceaccounts:kube-system"}, want: "atoll:serviceaccount:kube-system:x", in: []string{"atoll:serviceaccounts:kube-system"}},
		{what: "a ServiceAccount in a group like a tenant's", name: "system:serviceaccount:shop:ci", groups: []string{"atoll-team", "system:serviceaccounts:atoll-x"}, want: "atoll:serviceaccount:shop:ci", in: []string{"atoll-team"}},
		{what: "a user that claims groups of ServiceAccounts", name: "jane", groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "dev"}, want: "jane", in: []string{"dev"}},
		{what: "groups of a cluster's own", name: "jane", groups: []string{"system:nodes", "system:bootstrappers", "", "dev", "dev"}, want: "jane", in: []string{"dev"}},
		{what: "a user with a group of Atoll's", name: "jane", groups: []string{"atoll:masters", "atoll:serviceaccounts"}, want: "jane"},
		{what: "a name that loses a blank on its way", name: " atoll:admin", refuse: "blanks"},
		{what: "one at its end", name: "jane ", refuse: "blanks"},
		{what: "a tab", name: "\tsystem:admin", refuse: "blanks"},
		{what: "a name with the end of a line", name: "jane\r\nImpersonate-Group: ops", refuse: "blanks"},
		{what: "groups that become others on their way", name: "jane", groups: []string{" atoll:masters", "atoll:masters ", "\tatoll:masters", " system:masters", "dev\nops", "dev ", "our team"}, want: "jane", in: []string{"our team"}},
		{what: "a ServiceAccount with a blank", name: "system:serviceaccount:shop:ci ", refuse: "blanks"},
		{what: "no user", name: "", refuse: "the request has no user"},
		{what: "without a login", name: "system:anonymous", groups: []string{"system:unauthenticated"}, refuse: "the request has no user"},
		{what: "an unauthenticated user", name: "jane", groups: []string{"system:unauthenticated"}, refuse: "the request has no user"},
		{what: "a user with a name of Atoll's", name: "atoll:admin", groups: []string{"dev"}, refuse: "Atoll's own"},
		{what: "a user with a ServiceAccount's name as members know it", name: "atoll:serviceaccount:shop:ci", refuse: "Atoll's own"},
		{what: "a component", name: "system:kube-scheduler", refuse: "a cluster's own"},
		{what: "a node", name: "system:node:a", groups: []string{"system:nodes"}, refuse: "a cluster's own"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, err := MemberIdentityOf(c.name, c.groups)
			if c.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), c.refuse) {
					t.Fatalf("is %+v in members, %v; wanted an error with %q", got, err, c.refuse)
				}
				return
			}
			if err != nil || got.Name != c.want || !slices.Equal(got.Groups, c.in) {
				t.Fatalf("is %q in %q, %v; wanted %q in %q", got.Name, got.Groups, err, c.want, c.in)
			}
			if err := CheckImpersonation(got); err != nil {
				t.Errorf("and no agent lets him in: %v", err)
			}
		})
	}
}

// FuzzOf: whatever users are called, no user is carried over under a name with a meaning for a
// member's Kubernetes, and only the intended user under one of Atoll's.
func FuzzOf(f *testing.F) {
	f.Add("jane", "dev")
	f.Add("system:serviceaccount:a:b", "system:masters")
	f.Add("atoll:x", "atoll:masters")
	f.Add("system:atoll:masters", "system:serviceaccounts:x")
	f.Add(" atoll:x", "\tatoll:masters")
	f.Add("jane", "dev\r\nImpersonate-Group: atoll:masters")
	f.Fuzz(func(t *testing.T, name, group string) {
		p, err := MemberIdentityOf(name, []string{group})
		if err != nil {
			return
		}
		carried := http.Header{}
		p.ReplaceIdentity(carried)
		if p = personFromWire(t, carried); CheckImpersonation(p) != nil {
			t.Fatalf("%q in %q becomes %+v, which no member lets in", name, group, p)
		}
		if strings.HasPrefix(p.Name, Prefix) && !strings.HasPrefix(name, "system:") {
			t.Fatalf("%q comes by the name %q", name, p.Name)
		}
		for _, g := range p.Groups {
			if strings.HasPrefix(g, Prefix) && !strings.HasPrefix(group, "system:") {
				t.Fatalf("group %q comes by the name %q", group, g)
			}
		}
	})
}

// personFromWire is the person of a header at the other end of a connection.
func personFromWire(t *testing.T, h http.Header) Person {
	t.Helper()
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\r\n")
	read, err := textproto.NewReader(bufio.NewReader(&b)).ReadMIMEHeader()
	if err != nil {
		t.Fatal(err)
	}
	return ImpersonatedPerson(http.Header(read))
}

func TestAgentsCheckWhoIsImpersonated(t *testing.T) {
	for _, p := range []Person{
		{}, {Groups: []string{"dev"}}, {Name: "system:admin"}, {Name: "jane", Groups: []string{"system:masters"}},
		{Name: "system:serviceaccount:kube-system:default"}, {Name: "jane", Groups: []string{"dev", "system:nodes"}},
		{Name: " system:admin"}, {Name: "jane", Groups: []string{" system:masters"}}, {Name: "jane", Groups: []string{""}},
	} {
		if CheckImpersonation(p) == nil {
			t.Errorf("%+v is let in", p)
		}
	}
}

// TestTokensAreNotPassedOn: browsers say them among the protocols of a WebSocket.
func TestTokensAreNotPassedOn(t *testing.T) {
	h := http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0", "base64url.bearer.authorization.k8s.io.c2VjcmV0,v4.channel.k8s.io"}}
	Person{Name: "jane"}.ReplaceIdentity(h)
	if got := strings.Join(h.Values("Sec-Websocket-Protocol"), ", "); got != "v5.channel.k8s.io, v4.channel.k8s.io" {
		t.Errorf("passed on: %q", got)
	}
	h = http.Header{"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0"}}
	Person{Name: "jane"}.ReplaceIdentity(h)
	if got, is := h["Sec-Websocket-Protocol"]; is {
		t.Errorf("passed on: %q", got)
	}
}

func TestCredentialsAreNotPassedOn(t *testing.T) {
	h := http.Header{}
	for _, field := range []string{
		"Authorization", "authorization", "Impersonate-User", "impersonate-uid", "Impersonate-Extra-Scopes", "Impersonate-Group",
		"X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Acme", "Cookie", "Accept",
	} {
		h.Add(field, "x")
	}
	Person{Name: "jane", Groups: []string{"dev", "ops"}}.ReplaceIdentity(h)
	want := http.Header{"Accept": {"x"}, "Impersonate-User": {"jane"}, "Impersonate-Group": {"dev", "ops"}}
	if len(h) != len(want) {
		t.Errorf("passed on: %v", h)
	}
	for field, values := range want {
		if !slices.Equal(h[field], values) {
			t.Errorf("%s: %q, wanted %q", field, h[field], values)
		}
	}
	if got := ImpersonatedPerson(h); got.Name != "jane" || !slices.Equal(got.Groups, []string{"dev", "ops"}) {
		t.Errorf("read back as %+v", got)
	}
}
