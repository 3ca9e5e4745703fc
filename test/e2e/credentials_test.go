package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/apiserver/keys"
	vocabulary "atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust/standing"
)

// shortLived is a lab of its own whose agents' certificates live for half a minute.
type shortLived struct {
	*lab.Lab
	t    *testing.T
	data string // of the hub
}

const shortLife = 30 * time.Second

func newShortLived(t *testing.T, members int) *shortLived {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "l")
	t.Cleanup(func() {
		l, err := lab.Open(dir)
		if err != nil {
			return
		}
		if t.Failed() {
			for _, name := range []string{"hub", "agent-member1", "agent-member2"} {
				t.Logf("%s ended with:\n%s", name, tail(filepath.Join(dir, "logs", name+".log")))
			}
		}
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l, err := lab.Up(t.Context(), lab.Options{
		Dir: dir, Members: members, Nodes: 1, Progress: t.Output(), HubArgs: []string{"--agent-certificate-lifetime", shortLife.String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &shortLived{Lab: l, t: t, data: filepath.Join(dir, "hub")}
}

// kubeconfig that the hub itself keeps good.
func (l *shortLived) kubeconfig() string { return filepath.Join(l.data, "hub.kubeconfig") }

func (l *shortLived) cli(args ...string) (string, error) {
	return runBinary(l.t.Context(), "atoll", append(args, "--kubeconfig", l.kubeconfig())...)
}

// standing of the hub, as people ask for it, after an action.
func (l *shortLived) standing(action string) (s standing.Standing) {
	l.t.Helper()
	out, err := l.cli("ca", action, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *shortLived) log(name string) string {
	text, err := os.ReadFile(filepath.Join(l.Dir(), "logs", strings.ReplaceAll(name, "/", "-")+".log"))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// client of the hub.
func (l *shortLived) client() client.Client {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: state.Scheme()})
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// connected waits until these agents are.
func (l *shortLived) connected(members ...string) {
	l.t.Helper()
	eventually(l.t, 2*converge, strings.Join(members, " and ")+" are connected", func(context.Context) string {
		out, err := l.cli("get", "clusters", "-o", "wide")
		if err != nil {
			return err.Error()
		}
		for _, m := range members {
			if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				f := strings.Fields(line)
				return len(f) > 2 && f[0] == m && f[2] == "yes" && strings.Contains(line, " left ")
			}) {
				return "the output is: " + out
			}
		}
		return ""
	})
}

func (l *shortLived) do(what func(context.Context, string) error, name string) {
	l.t.Helper()
	if err := what(l.t.Context(), name); err != nil {
		l.t.Fatal(err)
	}
}

// Certificates are renewed over the stream, which goes on, and nothing is written. The hub's
// CAs are rotated: agents follow within seconds, and the rotation is not finished by mistake
// while one that checks in has not. One that was away for months, with a certificate of a CA
// that counts no more, comes back by its key; and so do all when the hub is restored from a
// backup of before.
func TestCredentialsTakeCareOfThemselves(t *testing.T) {
	l := newShortLived(t, 2)
	l.connected("member1", "member2")
	// Far apart: between two of them, however long what follows takes, it is in touch.
	l.checksIn("member2", `{"type": "CheckIn", "interval": "10m"}`)
	eventually(t, converge, "member2 checks in", says(func() string { return l.log("agent/member2") }, "checked in"))
	l.do(l.Kill, "agent/member2")
	l.wasAwayForMonths("member2")
	l.renews("member1")

	backup := snapshot{t: t, data: l.data, dir: t.TempDir()}
	if _, err := runBinary(t.Context(), "atoll-hub", "backup", "--data-dir", l.data, "--file", backup.file()); err != nil {
		t.Fatal(err)
	}
	l.rotates()
	if n := l.sessions("member1"); n != 1 {
		t.Errorf("the agent that was there has had %d sessions", n)
	}

	l.checksIn("member2", "null")
	before := l.sessions("member2")
	l.do(l.Start, "agent/member2")
	eventually(t, converge, "the agent that was away comes back", func(context.Context) string {
		if l.sessions("member2") == before {
			return tail(filepath.Join(l.Dir(), "logs", "agent-member2.log"))
		}
		return ""
	})

	l.do(l.Kill, "hub")
	if err := os.Rename(l.data, filepath.Join(backup.dir, "old")); err != nil {
		t.Fatal(err)
	}
	if _, err := runBinary(t.Context(), "atoll-hub", "restore", "--data-dir", l.data, "--file", backup.file()); err != nil {
		t.Fatal(err)
	}
	l.do(l.Start, "hub")
	if s := l.standing("status"); s.Generation != 1 {
		t.Errorf("the restored hub has CAs of generation %d", s.Generation)
	}
	l.connected("member1", "member2")
}

// sessions that an agent has had.
func (l *shortLived) sessions(member string) int {
	return strings.Count(l.log("agent/"+member), "linked to the hub")
}

// checksIn sets how a cluster connects.
func (l *shortLived) checksIn(member, connection string) {
	l.t.Helper()
	cluster := &v1alpha1.Cluster{}
	cluster.Name = member
	if err := l.client().Patch(l.t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"connection": `+connection+`}}`))); err != nil {
		l.t.Fatal(err)
	}
}

// wasAwayForMonths puts a certificate that the hub gave months ago in the place of the
// present one of an agent that does not run.
func (l *shortLived) wasAwayForMonths(member string) {
	t := l.t
	t.Helper()
	kept := identityIn(t, l.Kubeconfig(member))
	id, err := kept.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set, err := keys.LoadOrCreate(filepath.Join(l.data, "keys"), false)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(id.CertificatePEM, id.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	id.CertificatePEM, err = set.AgentCA.Sign(pair.Leaf.PublicKey, keys.Request{
		CommonName: pair.Leaf.Subject.CommonName, Organization: pair.Leaf.Subject.Organization, NotBefore: time.Now().AddDate(0, -3, 0), Lifetime: 24 * time.Hour,
	})
	if err == nil {
		err = kept.PutIdentity(t.Context(), *id)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// identityIn a member is what its agent keeps of itself.
func identityIn(t *testing.T, kubeconfig string) *store.Store {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.New(config, vocabulary.SystemNamespace, func(context.Context) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// renews waits for a renewal, by which nothing is written of the Cluster.
func (l *shortLived) renews(member string) {
	t := l.t
	t.Helper()
	hub, cluster := l.client(), &v1alpha1.Cluster{}
	look := func(ctx context.Context) error { return hub.Get(ctx, client.ObjectKey{Name: member}, cluster) }
	renewals := func() int { return strings.Count(l.log("agent/"+member), "certificate renewed") }
	had, before := renewals(), ""
	ended := l.ends(member)
	eventually(t, converge, "a renewal", func(ctx context.Context) string {
		if err := look(ctx); err != nil {
			return err.Error()
		}
		if renewals() > had {
			return ""
		}
		before = cluster.ResourceVersion
		return "none"
	})
	eventually(t, converge, "the hub tells of the new certificate", func(context.Context) string {
		if ends := l.ends(member); !ends.After(ended) {
			return "it ends at " + ends.String()
		}
		return ""
	})
	if err := look(t.Context()); err != nil || cluster.ResourceVersion != before {
		t.Errorf("something was written of the Cluster (%v): version %s became %+v", err, before, cluster)
	}
}

// ends is when the hub says that an agent's certificate does.
func (l *shortLived) ends(member string) time.Time {
	l.t.Helper()
	var told standing.Certificates
	out, err := runBinary(l.t.Context(), "atoll-lab", "kubectl", "--kubeconfig", l.kubeconfig(), "get", "--raw", standing.CertificatesPath)
	if err == nil {
		err = json.Unmarshal([]byte(out), &told)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return told.Ends[member]
}

// rotates the hub's CAs while member1 is there and member2, which checks in, is not.
func (l *shortLived) rotates() {
	t := l.t
	t.Helper()
	first := l.standing("status")
	if out, err := l.cli("ca", "finish"); err == nil {
		t.Errorf("finished what was not begun: %s", out)
	}
	old := filepath.Join(t.TempDir(), "old.kubeconfig")
	if text, err := os.ReadFile(l.kubeconfig()); err != nil || os.WriteFile(old, text, 0o600) != nil {
		t.Fatal("cannot keep the old kubeconfig", err)
	}
	if s := l.standing("rotate"); s.Generation != 2 || s.RotatingSince == nil || s.CAHash == first.CAHash || !slices.Contains(s.FormerHashes, first.CAHash) {
		t.Errorf("after the beginning: %+v", s)
	}
	eventually(t, converge, "the agent that is there follows", func(context.Context) string {
		if s := l.standing("status"); s.Agents.Current != 1 || !slices.Equal(s.Agents.FormerClusters, []string{"member2"}) {
			return fmt.Sprintf("%+v", s.Agents)
		}
		return ""
	})
	var made invitation
	out, err := l.cli("token", "create", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err != nil || made.CAHash == first.CAHash {
		t.Errorf("new clusters are told to pin %s, %v", made.CAHash, err)
	}
	warned := binary(t, "", "atoll-lab", "kubectl", "--kubeconfig", old, "get", "namespaces")
	expect(t, "who comes by an old kubeconfig", warned, "your client certificate ends when that is finished", "kube-system")
	out, err = runBinary(t.Context(), "atoll", "ca", "finish", "--kubeconfig", old)
	expect(t, "who would cut himself off", fmt.Sprint(out, err), "you come by a client certificate of the former CA")
	out, err = l.cli("ca", "status")
	expect(t, "the standing", fmt.Sprint(out, err), "user atoll-admin came by a client certificate of the former CA", "in touch, and not yet", ": member2")
	out, err = l.cli("ca", "finish")
	expect(t, "who would finish too early", fmt.Sprint(out, err), "1 agents that are in touch are not known to have certificates of the new CA")
	if out, err = l.cli("ca", "finish", "--force"); err != nil {
		t.Fatal(out, err)
	}
	if s := l.standing("status"); s.Generation != 2 || s.RotatingSince != nil {
		t.Errorf("after the end: %+v", s)
	}
	if out := binary(t, "", "atoll-lab", "kubectl", "--kubeconfig", old, "get", "namespaces"); strings.Contains(out, "kube-system") {
		t.Errorf("the old kubeconfig is good for %s", out)
	}
}
