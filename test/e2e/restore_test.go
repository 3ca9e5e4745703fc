package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/lab"
)

// runBinary runs a built binary and gives what it printed.
func runBinary(ctx context.Context, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(lab.BinDirVariable), name), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// atoll runs the CLI against the hub; it has to succeed.
func atoll(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runBinary(t.Context(), "atoll", append([]string{"--kubeconfig", world.lab.Kubeconfig("hub")}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// snapshot of the hub, and how it is put back.
type snapshot struct {
	t    *testing.T
	data string // the hub's data directory
	dir  string // of what was saved
}

// save the hub: a backup while it runs, or, raw, its files after a SIGKILL.
func save(t *testing.T, raw bool) snapshot {
	t.Helper()
	s := snapshot{t: t, data: filepath.Join(world.lab.Dir(), "hub"), dir: t.TempDir()}
	if !raw {
		if _, err := runBinary(t.Context(), "atoll-hub", "backup", "--data-dir", s.data, "--file", s.file()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s.kill()
	// A socket is no file to copy; a start makes it anew.
	sockets, err := filepath.Glob(filepath.Join(s.data, "etcd", "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(s.dir, "files"), os.DirFS(s.data)); err != nil {
		t.Fatal(err)
	}
	s.start()
	return s
}

func (s snapshot) file() string { return filepath.Join(s.dir, "backup") }

func (s snapshot) kill() {
	s.t.Helper()
	takeDown(s.t, "hub")
}

func (s snapshot) start() {
	s.t.Helper()
	bringBack(s.t, "hub")
}

// restore kills the hub and starts it with what was saved. A backup is restored with
// a bumped revision; marked says whether the hub is told so.
func (s snapshot) restore(marked bool) {
	s.t.Helper()
	s.kill()
	if err := os.Rename(s.data, filepath.Join(s.dir, "old")); err != nil {
		s.t.Fatal(err)
	}
	err := os.CopyFS(s.data, os.DirFS(filepath.Join(s.dir, "files")))
	if errors.Is(err, os.ErrNotExist) {
		_, err = runBinary(s.t.Context(), "atoll-hub", "restore", "--data-dir", s.data, "--file", s.file())
		if err == nil && !marked {
			err = os.Remove(filepath.Join(s.data, "restored"))
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// restoreStatus as `atoll restore status -o json` gives it.
type restoreStatus struct {
	Holding bool
	Rewound *struct {
		Reason string
		Told   *struct{ Clusters, Templates, Rows int }
	}
	Waiting []struct{ Bundle, Namespace, Plan string }
}

func lookAtRestore(ctx context.Context) (s restoreStatus, err error) {
	out, err := runBinary(ctx, "atoll", "--kubeconfig", world.lab.Kubeconfig("hub"), "restore", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	return s, err
}

// holds gives a check that the hub holds, and that so many members told what they
// remember: of that many templates and rows.
func holds(reason string, clusters, templates, rows int) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		s, err := lookAtRestore(ctx)
		switch {
		case err != nil:
			return err.Error()
		case !s.Holding || !strings.Contains(s.Rewound.Reason, reason):
			return fmt.Sprintf("the hub does not hold because of %q: %+v", reason, s.Rewound)
		case s.Rewound.Told == nil && clusters > 0:
			return "no member told what it remembers"
		case clusters > 0 && (s.Rewound.Told.Clusters != clusters || s.Rewound.Told.Templates != templates || s.Rewound.Told.Rows != rows):
			return fmt.Sprintf("told: %+v, want %d clusters, %d templates, %d rows", *s.Rewound.Told, clusters, templates, rows)
		}
		return ""
	}
}

// waitsFor gives a check that exactly these Bundles of the namespace wait for a decision.
func waitsFor(ns string, plans map[string]string, bundles ...string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		s, err := lookAtRestore(ctx)
		if err != nil {
			return err.Error()
		}
		clear(plans)
		for _, w := range s.Waiting {
			if w.Namespace == ns {
				plans[w.Bundle] = w.Plan
			}
		}
		if len(plans) != len(bundles) {
			return fmt.Sprintf("waiting: %v, want %v", plans, bundles)
		}
		for _, b := range bundles {
			if !slices.ContainsFunc(s.Waiting, func(w struct{ Bundle, Namespace, Plan string }) bool {
				return w.Namespace == ns && strings.Contains(w.Bundle, b)
			}) {
				return fmt.Sprintf("waiting: %v, want %v", plans, bundles)
			}
		}
		return ""
	}
}

// planOf the Bundle whose name holds part.
func planOf(t *testing.T, plans map[string]string, part string) (bundle, plan string) {
	t.Helper()
	for b, p := range plans {
		if strings.Contains(b, part) {
			return b, p
		}
	}
	t.Fatalf("no plan of %s in %v", part, plans)
	return "", ""
}

// config applies a ConfigMap.
func config(t *testing.T, ns, name, clusters, value string) {
	t.Helper()
	apply(t, ns, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: $NS, annotations: {atoll.dev/clusters: %q}}\ndata: {value: %q}", name, clusters, value))
}

// value gives a check of a ConfigMap's value; "": the member is not to have it.
func value(cluster, ns, name, want string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		o, err := get(ctx, cluster, "v1", "ConfigMap", ns, name)
		if err != nil {
			return fmt.Sprintf("%s: %v", cluster, err)
		}
		got := ""
		if o != nil {
			got, _, _ = unstructured.NestedString(o.Object, "data", "value")
		}
		if got != want {
			return fmt.Sprintf("%s has ConfigMap %s at %q, want %q", cluster, name, got, want)
		}
		return ""
	}
}

// values gives a check in all of these members.
func values(clusters []string, ns, name, want string) func(ctx context.Context) string {
	var checks []func(ctx context.Context) string
	for _, c := range clusters {
		checks = append(checks, value(c, ns, name, want))
	}
	return all(checks...)
}

// hasWeb gives a check that Deployment web and its ConfigMap are in the members, or
// are not.
func hasWeb(clusters []string, ns string, want bool) func(ctx context.Context) string {
	var checks []func(ctx context.Context) string
	for _, c := range clusters {
		checks = append(checks, inCluster(c, "apps/v1", "Deployment", ns, "web", want), inCluster(c, "v1", "ConfigMap", ns, "web", want))
	}
	return all(checks...)
}

// stays checks that something goes on to be true for a while.
func stays(t *testing.T, what string, check func(ctx context.Context) string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 3*time.Second, true, func(context.Context) (bool, error) {
		// A look may last longer than the time that is left.
		if why := check(t.Context()); why != "" {
			return false, errors.New(why)
		}
		return false, nil
	})
	if err != nil && !wait.Interrupted(err) {
		t.Fatalf("%s: %v", what, err)
	}
}

// bundlesReady gives a check that all Bundles of the namespace but some are Ready, or
// are on their way out.
func bundlesReady(ns string, but ...string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("atoll.dev/v1alpha1")
		list.SetKind("BundleList")
		if err := hub().List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		for _, b := range list.Items {
			if b.GetDeletionTimestamp() != nil || slices.ContainsFunc(but, func(part string) bool { return strings.Contains(b.GetName(), part) }) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(b.Object, "status", "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == "Ready" && c["status"] != "True" || c["type"] == "RemovalHeld" && c["status"] == "True" {
					return fmt.Sprintf("Bundle %s: %v is %v: %v", b.GetName(), c["type"], c["status"], c["message"])
				}
			}
		}
		return ""
	}
}

// before the snapshot: what there is.
func before(t *testing.T, name string) (ns string) {
	t.Helper()
	ns = namespace(t, fmt.Sprintf("%s-%d", name, time.Now().Unix()))
	apply(t, ns, everywhere+"---\n"+web)
	for _, name := range []string{"edited", "lone", "same"} {
		config(t, ns, name, "*", "1")
	}
	config(t, ns, "moved", "member1,member2", "1")
	eventually(t, converge, "delivery", all(
		hasWeb(members, ns, true), values(members, ns, "edited", "1"), values(members, ns, "lone", "1"), values(members, ns, "same", "1"),
		value("member1", ns, "moved", "1"), value("member2", ns, "moved", "1"),
		field("hub", ns, "web", "status.availableReplicas", 2), bundlesReady(ns),
	))
	return ns
}

// after the snapshot: what users did, and the members that are reached made of it.
func after(t *testing.T, ns string, reached ...string) {
	t.Helper()
	remove(t, "apps/v1", "Deployment", ns, "web")
	remove(t, "v1", "ConfigMap", ns, "lone")
	config(t, ns, "edited", "*", "2")
	config(t, ns, "late", "*", "1")
	config(t, ns, "moved", "member2", "1")
	eventually(t, converge, "what users did", all(
		hasWeb(reached, ns, false), values(reached, ns, "lone", ""), values(reached, ns, "edited", "2"), values(reached, ns, "late", "1"),
		value("member1", ns, "moved", ""), value("member2", ns, "moved", "1"),
		inCluster("hub", "apps/v1", "Deployment", ns, "web", false),
	))
}

// held is how members stay while the hub holds: as users left them.
func held(ns string, reached ...string) func(ctx context.Context) string {
	return all(
		hasWeb(reached, ns, false), values(reached, ns, "lone", ""), values(reached, ns, "edited", "2"), values(reached, ns, "late", "1"),
		values(reached, ns, "during", ""), value("member1", ns, "moved", ""), value("member2", ns, "moved", "1"),
	)
}

func cut(t *testing.T, member string) {
	t.Helper()
	if err := world.lab.Cut(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.lab.Heal(context.WithoutCancel(t.Context()), member); err != nil {
			t.Error(err)
		}
	})
}

func heal(t *testing.T, member string) {
	t.Helper()
	if err := world.lab.Heal(t.Context(), member); err != nil {
		t.Fatal(err)
	}
}

// acceptAtLast leaves no hub that holds to the tests that follow.
func acceptAtLast(t *testing.T) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if s, err := lookAtRestore(ctx); err == nil && s.Holding {
			if _, err := runBinary(ctx, "atoll", "--kubeconfig", world.lab.Kubeconfig("hub"), "restore", "accept", "--hub"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestARestoredHubWhoseWordCounts(t *testing.T) {
	ns := before(t, "rewind-hub")
	s := save(t, false)
	cut(t, "member3")
	after(t, ns, "member1", "member2")
	acceptAtLast(t)
	s.restore(true)
	eventually(t, converge, "the hub holds", holds("restored at", 2, 2, 1))
	if text := atoll(t, "restore", "status"); !strings.Contains(text, "The hub holds since") || !strings.Contains(text, "Deployment "+ns+"/web was deleted") {
		t.Errorf("restore status says:\n%s", text)
	}
	config(t, ns, "during", "*", "1")
	stays(t, "nothing is issued", held(ns, "member1", "member2"))

	atoll(t, "restore", "accept", "--hub")
	heal(t, "member3")
	eventually(t, converge, "what the hub has is everywhere", all(
		hasWeb(members, ns, true), values(members, ns, "lone", "1"), values(members, ns, "edited", "1"),
		values(members, ns, "same", "1"), values(members, ns, "during", "1"),
		value("member1", ns, "moved", "1"), value("member2", ns, "moved", "1"),
	))
	eventually(t, converge, "statuses", all(field("hub", ns, "web", "status.availableReplicas", 2), bundlesReady(ns)))
	eventually(t, converge, "what the hub does not know is kept and listed", all(
		value("member1", ns, "late", "1"), value("member2", ns, "late", "1"), unclaimed("member1"), unclaimed("member2"),
	))
}

// unclaimed gives a check that the Cluster lists what no row asks for.
func unclaimed(cluster string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster)
		if err != nil || o == nil {
			return fmt.Sprintf("no Cluster %s (%v)", cluster, err)
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Unclaimed" && c["status"] == "True" {
				return ""
			}
		}
		return fmt.Sprintf("Cluster %s lists nothing as unclaimed", cluster)
	}
}

func TestARestoredHubWhoseMembersWordCounts(t *testing.T) {
	ns := before(t, "rewind-members")
	s := save(t, true)
	cut(t, "member3")
	after(t, ns, "member1", "member2")
	cut(t, "member2")
	acceptAtLast(t)
	s.restore(false)
	eventually(t, converge, "the hub holds", holds("an agent saw revision", 1, 2, 1))
	config(t, ns, "during", "*", "1")
	stays(t, "nothing is issued", held(ns, "member1", "member2"))

	atoll(t, "restore", "accept", "--members")
	plans := map[string]string{}
	eventually(t, converge, "removals are held", all(
		values([]string{"member1"}, ns, "during", "1"), values([]string{"member1"}, ns, "edited", "1"),
		waitsFor(ns, plans, "web", "lone", "moved"),
	))
	heal(t, "member2")
	heal(t, "member3")
	both := []string{"member1", "member2"}
	settled := all(
		values(members, ns, "during", "1"), values(members, ns, "edited", "1"), values(members, ns, "same", "1"), values(both, ns, "late", "1"),
		// Nothing comes back, and nothing is deleted that was not confirmed.
		hasWeb(both, ns, false), values(both, ns, "lone", ""), hasWeb([]string{"member3"}, ns, true), value("member3", ns, "lone", "1"),
		value("member1", ns, "moved", ""), value("member2", ns, "moved", "1"), value("member3", ns, "moved", ""),
	)
	eventually(t, converge, "members catch up", all(settled, bundlesReady(ns, "web", "lone", "moved")))
	stays(t, "it waits", settled)

	for _, name := range []string{"web", "lone", "moved"} {
		bundle, plan := planOf(t, plans, name)
		atoll(t, "confirm", bundle, "-n", ns, "--plan", plan)
	}
	eventually(t, converge, "what was confirmed is gone", all(
		hasWeb(members, ns, false), values(members, ns, "lone", ""), value("member1", ns, "moved", ""), value("member2", ns, "moved", "1"),
		inCluster("hub", "apps/v1", "Deployment", ns, "web", false), inCluster("hub", "v1", "ConfigMap", ns, "lone", false),
		waitsFor(ns, plans), bundlesReady(ns),
	))
	config(t, ns, "moved", "member1", "2")
	eventually(t, converge, "a new placement is a new word", all(value("member1", ns, "moved", "2"), value("member2", ns, "moved", "")))
}

func TestAStoreRestoredWithABumpedRevision(t *testing.T) {
	ns := before(t, "rewind-bumped")
	s := save(t, false)
	after(t, ns, members...)
	for _, m := range members {
		cut(t, m)
	}
	acceptAtLast(t)
	s.restore(false)
	// Nobody had to tell the hub: no agent is there, and no marker.
	eventually(t, converge, "the hub holds", holds("revision bump", 0, 0, 0))
	atoll(t, "restore", "accept", "--members")
	for _, m := range members {
		heal(t, m)
	}
	plans := map[string]string{}
	eventually(t, converge, "removals are held", all(waitsFor(ns, plans, "web", "lone", "moved"), values(members, ns, "edited", "1")))
	stays(t, "nothing comes back", all(hasWeb(members, ns, false), values(members, ns, "lone", ""), value("member1", ns, "moved", "")))
	for _, name := range []string{"web", "lone", "moved"} {
		bundle, plan := planOf(t, plans, name)
		atoll(t, "restore", "keep", bundle, "-n", ns, "--plan", plan)
	}
	eventually(t, converge, "what was kept is back", all(
		hasWeb(members, ns, true), values(members, ns, "lone", "1"), value("member1", ns, "moved", "1"), value("member2", ns, "moved", "1"),
		field("hub", ns, "web", "status.availableReplicas", 2), waitsFor(ns, plans), bundlesReady(ns),
	))
	// A member that comes again tells again; what was decided stays decided.
	cut(t, "member1")
	heal(t, "member1")
	config(t, ns, "same", "*", "2")
	eventually(t, converge, "member1 is back", values(members, ns, "same", "2"))
	stays(t, "what was kept stays", all(hasWeb(members, ns, true), value("member1", ns, "moved", "1"), waitsFor(ns, plans)))
}

func TestTheHubRestartsWhileMembersAreAway(t *testing.T) {
	ns := before(t, "cold")
	for _, m := range members {
		cut(t, m)
	}
	remove(t, "v1", "ConfigMap", ns, "lone")
	config(t, ns, "moved", "member2,member3", "1")
	s := snapshot{t: t}
	s.kill()
	s.start()
	config(t, ns, "edited", "*", "2")
	stays(t, "members keep what they have", all(
		hasWeb(members, ns, true), values(members, ns, "lone", "1"), values(members, ns, "edited", "1"), value("member1", ns, "moved", "1"),
	))
	s.kill()
	s.start()
	for _, m := range members {
		heal(t, m)
	}
	eventually(t, converge, "members catch up", all(
		hasWeb(members, ns, true), values(members, ns, "lone", ""), values(members, ns, "edited", "2"), values(members, ns, "same", "1"),
		value("member1", ns, "moved", ""), value("member2", ns, "moved", "1"), value("member3", ns, "moved", "1"),
		inCluster("hub", "v1", "ConfigMap", ns, "lone", false), field("hub", ns, "web", "status.availableReplicas", 2), bundlesReady(ns),
	))
}
