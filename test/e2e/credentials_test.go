package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust/standing"
)

// shortLived is a lab of its own whose agents' certificates live for a minute.
type shortLived struct {
	*lab.Lab
	t    *testing.T
	data string // of the hub
}

const shortLife = time.Minute

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

func (l *shortLived) cluster(ctx context.Context, name string) (*v1alpha1.Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig())
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: state.Scheme()})
	if err != nil {
		return nil, err
	}
	cluster := &v1alpha1.Cluster{}
	return cluster, c.Get(ctx, client.ObjectKey{Name: name}, cluster)
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
				return out
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

// Certificates of a minute are renewed over the stream, which goes on, and nothing is
// written. The hub's CAs are rotated: agents follow within seconds; one that was away, with
// a certificate that has ended, of a CA that counts no more, comes back by its key; and so do
// all when the hub is restored from a backup of before.
func TestCredentialsTakeCareOfThemselves(t *testing.T) {
	l := newShortLived(t, 2)
	l.connected("member1", "member2")
	renewed := func(n int) func(context.Context) string {
		return func(context.Context) string {
			if got := strings.Count(l.log("agent/member1"), "certificate renewed"); got < n {
				return fmt.Sprintf("%d times", got)
			}
			return ""
		}
	}
	eventually(t, converge, "the first renewal", renewed(1))
	before, err := l.cluster(t.Context(), "member1")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*converge, "two more", renewed(3))
	after, err := l.cluster(t.Context(), "member1")
	if err != nil {
		t.Fatal(err)
	}
	if before.ResourceVersion != after.ResourceVersion {
		t.Errorf("something was written of the Cluster: %+v, then %+v", before.Status, after.Status)
	}
	if n := strings.Count(l.log("agent/member1"), "linked to the hub"); n != 1 {
		t.Errorf("the agent has had %d sessions", n)
	}

	backup := snapshot{t: t, data: l.data, dir: t.TempDir()}
	if _, err := runBinary(t.Context(), "atoll-hub", "backup", "--data-dir", l.data, "--file", backup.file()); err != nil {
		t.Fatal(err)
	}
	l.do(l.Kill, "agent/member2")
	l.rotates()

	l.do(l.Start, "agent/member2")
	l.connected("member1", "member2")

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

// rotates the hub's CAs while member1 is there and member2 is not, whose certificate ends.
func (l *shortLived) rotates() {
	t := l.t
	t.Helper()
	killed, first := time.Now(), l.standing("status")
	if out, err := l.cli("ca", "finish"); err == nil {
		t.Errorf("finished what was not begun: %s", out)
	}
	if s := l.standing("rotate"); s.Generation != 2 || s.RotatingSince == nil || s.CAHash == first.CAHash || !slices.Contains(s.FormerHashes, first.CAHash) {
		t.Errorf("after the beginning: %+v", s)
	}
	eventually(t, converge, "the agent that is there follows", func(context.Context) string {
		if s := l.standing("status"); s.Agents.Former > 0 || s.Agents.Current == 0 {
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
	// Whoever has a copy of the hub's kubeconfig, the lab too, needs the new one.
	fresh, err := os.ReadFile(l.kubeconfig())
	if err == nil {
		err = os.WriteFile(l.Kubeconfig("hub"), fresh, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := l.standing("finish"); s.Generation != 2 || s.RotatingSince != nil {
		t.Errorf("after the end: %+v", s)
	}
	if n := strings.Count(l.log("agent/member1"), "linked to the hub"); n != 1 {
		t.Errorf("the agent that was there has had %d sessions", n)
	}
	eventually(t, 2*shortLife, "the certificate of the one that is away ends", func(context.Context) string {
		if left := shortLife - time.Since(killed); left > 0 {
			return left.String()
		}
		return ""
	})
}
