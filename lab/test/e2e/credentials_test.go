package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
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
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust/standing"
	"atoll.dev/atoll/lab"
)

// ownLab is a lab of one test alone.
type ownLab struct {
	*lab.Lab
	t    *testing.T
	data string // of the hub
}

// shortLife is the lifetime of certificates in a lab in which they end soon.
const shortLife = 30 * time.Second

func newOwnLab(t *testing.T, members int, hubArgs ...string) *ownLab {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "l")
	t.Cleanup(func() {
		l, err := lab.OpenExisting(dir)
		if err != nil {
			return
		}
		if t.Failed() {
			for _, name := range []string{"hub", "agent-member1", "agent-member2"} {
				t.Logf("%s ended with:\n%s", name, fileTail(filepath.Join(dir, "logs", name+".log")))
			}
		}
		if err := l.StopAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l, err := lab.BringUp(t.Context(), lab.Options{
		Dir: dir, EndsWithStarter: true, Members: members, Nodes: 1, Progress: t.Output(), HubArgs: hubArgs,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &ownLab{Lab: l, t: t, data: filepath.Join(dir, "hub")}
}

// hubKubeconfig returns the kubeconfig that the hub itself renews.
func (l *ownLab) hubKubeconfig() string { return filepath.Join(l.data, "hub.kubeconfig") }

func (l *ownLab) runCLI(args ...string) (string, error) {
	return runBinary(l.t.Context(), "atoll", append(args, "--kubeconfig", l.hubKubeconfig())...)
}

// trustStatus returns the hub's trust status, as the CLI reads it, after an action.
func (l *ownLab) trustStatus(action string) (s standing.CAStatus) {
	l.t.Helper()
	out, err := l.runCLI("ca", action, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *ownLab) readLog(name string) string {
	text, err := os.ReadFile(filepath.Join(l.Dir(), "logs", strings.ReplaceAll(name, "/", "-")+".log"))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// hubClient returns a client of the hub.
func (l *ownLab) hubClient() client.Client {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.hubKubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: state.NewScheme()})
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// waitConnected waits until these agents are.
func (l *ownLab) waitConnected(members ...string) {
	l.t.Helper()
	testwait.UntilNilWithin(l.t, 2*testwait.HangLimit, strings.Join(members, " and ")+" are connected", func(context.Context) error {
		out, err := l.runCLI("get", "clusters", "-o", "wide")
		if err != nil {
			return err
		}
		for _, m := range members {
			if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
				f := strings.Fields(line)
				return len(f) > 2 && f[0] == m && f[2] == "yes" && strings.Contains(line, " left ")
			}) {
				return errors.New("the output is: " + out)
			}
		}
		return nil
	})
}

func (l *ownLab) mustDo(what func(context.Context, string) error, name string) {
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
	l := newOwnLab(t, 2, "--agent-certificate-lifetime", shortLife.String())
	l.waitConnected("member1", "member2")
	// Far apart: between two of them, however long what follows takes, it is in touch.
	l.checksIn("member2", `{"type": "CheckIn", "interval": "10m"}`)
	testwait.UntilNil(t, "member2 checks in", logSays(func() string { return l.readLog("agent/member2") }, "checked in"))
	l.mustDo(l.KillComponent, "agent/member2")
	l.wasAwayForMonths("member2")
	l.waitForRenewal("member1")

	backup := hubSnapshot{t: t, data: l.data, dir: t.TempDir()}
	if _, err := runBinary(t.Context(), "atoll-hub", "backup", "--data-dir", l.data, "--file", backup.filePath()); err != nil {
		t.Fatal(err)
	}
	l.rotateCAs()
	if n := l.sessionCount("member1"); n != 1 {
		t.Errorf("the agent that was there has had %d sessions", n)
	}

	l.checksIn("member2", "null")
	before := l.sessionCount("member2")
	l.mustDo(l.StartComponent, "agent/member2")
	testwait.UntilNil(t, "the agent that was away comes back", func(context.Context) error {
		if l.sessionCount("member2") == before {
			return fmt.Errorf("it has no new session; its log is:\n%s", fileTail(filepath.Join(l.Dir(), "logs", "agent-member2.log")))
		}
		return nil
	})

	l.mustDo(l.KillComponent, "hub")
	if err := os.Rename(l.data, filepath.Join(backup.dir, "old")); err != nil {
		t.Fatal(err)
	}
	if _, err := runBinary(t.Context(), "atoll-hub", "restore", "--data-dir", l.data, "--file", backup.filePath()); err != nil {
		t.Fatal(err)
	}
	l.mustDo(l.StartComponent, "hub")
	if s := l.trustStatus("status"); s.Generation != 1 {
		t.Errorf("the restored hub has CAs of generation %d", s.Generation)
	}
	l.waitConnected("member1", "member2")
}

// sessionCount returns the number of an agent's sessions so far.
func (l *ownLab) sessionCount(member string) int {
	return strings.Count(l.readLog("agent/"+member), "linked to the hub")
}

// checksIn sets how a cluster connects.
func (l *ownLab) checksIn(member, connection string) {
	l.t.Helper()
	cluster := &v1alpha1.Cluster{}
	cluster.Name = member
	if err := l.hubClient().Patch(l.t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"connection": `+connection+`}}`))); err != nil {
		l.t.Fatal(err)
	}
}

// wasAwayForMonths puts a certificate that the hub gave months ago in the place of the
// present one of an agent that does not run.
func (l *ownLab) wasAwayForMonths(member string) {
	t := l.t
	t.Helper()
	kept := identityIn(t, l.KubeconfigPath(member))
	id, err := kept.LoadIdentity(t.Context())
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
	id.CertificatePEM, err = set.AgentCA.SignKey(pair.Leaf.PublicKey, keys.Request{
		CommonName: pair.Leaf.Subject.CommonName, Organization: pair.Leaf.Subject.Organization, NotBefore: time.Now().AddDate(0, -3, 0), Lifetime: 24 * time.Hour,
	})
	if err == nil {
		err = kept.PutIdentity(t.Context(), *id)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// identityIn returns the store of the agent's identity in a member.
func identityIn(t *testing.T, kubeconfig string) *store.AgentStore {
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

// waitForRenewal waits for a renewal, by which nothing is written of the Cluster.
func (l *ownLab) waitForRenewal(member string) {
	t := l.t
	t.Helper()
	hub, cluster := l.hubClient(), &v1alpha1.Cluster{}
	look := func(ctx context.Context) error { return hub.Get(ctx, client.ObjectKey{Name: member}, cluster) }
	renewals := func() int { return strings.Count(l.readLog("agent/"+member), "certificate renewed") }
	had, before := renewals(), ""
	ended := l.certificateEnd(member)
	testwait.UntilNil(t, "a renewal", func(ctx context.Context) error {
		if err := look(ctx); err != nil {
			return err
		}
		if renewals() > had {
			return nil
		}
		before = cluster.ResourceVersion
		return errors.New("it has renewed none")
	})
	testwait.UntilNil(t, "the hub tells of the new certificate", func(context.Context) error {
		if ends := l.certificateEnd(member); !ends.After(ended) {
			return errors.New("it ends at " + ends.String())
		}
		return nil
	})
	if err := look(t.Context()); err != nil || cluster.ResourceVersion != before {
		t.Errorf("something was written of the Cluster (%v): version %s became %+v", err, before, cluster)
	}
}

// certificateEnd returns the end of an agent's certificate, as the hub shows it.
func (l *ownLab) certificateEnd(member string) time.Time {
	l.t.Helper()
	var shown standing.Certificates
	out, err := runBinary(l.t.Context(), "atoll-lab", "kubectl", "--kubeconfig", l.hubKubeconfig(), "get", "--raw", standing.CertificatesPath)
	if err == nil {
		err = json.Unmarshal([]byte(out), &shown)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return shown.Ends[member]
}

// rotateCAs rotates the hub's CAs while member1 is connected and member2, which checks in,
// is not.
func (l *ownLab) rotateCAs() {
	t := l.t
	t.Helper()
	first := l.trustStatus("status")
	if out, err := l.runCLI("ca", "finish"); err == nil {
		t.Errorf("finished what was not begun: %s", out)
	}
	old := filepath.Join(t.TempDir(), "old.kubeconfig")
	if text, err := os.ReadFile(l.hubKubeconfig()); err != nil || os.WriteFile(old, text, 0o600) != nil {
		t.Fatal("cannot keep the old kubeconfig", err)
	}
	if s := l.trustStatus("rotate"); s.Generation != 2 || s.RotatingSince == nil || s.CAHash == first.CAHash || !slices.Contains(s.FormerHashes, first.CAHash) {
		t.Errorf("after the beginning: %+v", s)
	}
	testwait.UntilNil(t, "the agent that is there follows", func(context.Context) error {
		if s := l.trustStatus("status"); s.Agents.Current != 1 || !slices.Equal(s.Agents.FormerClusters, []string{"member2"}) {
			return fmt.Errorf("the agents are %+v", s.Agents)
		}
		return nil
	})
	var made tokenInvitation
	out, err := l.runCLI("token", "create", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err != nil || made.CAHash == first.CAHash {
		t.Errorf("new clusters pin %s, %v", made.CAHash, err)
	}
	warned := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", old, "get", "namespaces")
	expectOutput(t, "a user with an old kubeconfig", warned, "your client certificate ends when that is finished", "kube-system")
	out, err = runBinary(t.Context(), "atoll", "ca", "finish", "--kubeconfig", old)
	expectOutput(t, "a user that would lose access", fmt.Sprint(out, err), "you come by a client certificate of the former CA")
	out, err = l.runCLI("ca", "status")
	expectOutput(t, "the standing", fmt.Sprint(out, err), "user atoll-admin came by a client certificate of the former CA", "in touch, and not yet", ": member2")
	out, err = l.runCLI("ca", "finish")
	expectOutput(t, "a user that would finish too early", fmt.Sprint(out, err), "1 agents that are in touch are not known to have certificates of the new CA")
	if out, err = l.runCLI("ca", "finish", "--force"); err != nil {
		t.Fatal(out, err)
	}
	if s := l.trustStatus("status"); s.Generation != 2 || s.RotatingSince != nil {
		t.Errorf("after the end: %+v", s)
	}
	if out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", old, "get", "namespaces"); strings.Contains(out, "kube-system") {
		t.Errorf("the old kubeconfig is good for %s", out)
	}
}
