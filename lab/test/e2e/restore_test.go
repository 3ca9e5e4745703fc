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

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
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

// mustCLI runs the CLI against the hub; it has to succeed.
func mustCLI(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runBinary(t.Context(), "atoll", append([]string{"--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// hubSnapshot is a snapshot of the hub, and how it is restored.
type hubSnapshot struct {
	t    *testing.T
	data string // the hub's data directory
	dir  string // of what was saved
}

// saveHub saves the hub: a backup while it runs, or, raw, its files after a SIGKILL.
func saveHub(t *testing.T, raw bool) hubSnapshot {
	t.Helper()
	s := hubSnapshot{t: t, data: filepath.Join(sharedWorld.lab.Dir(), "hub"), dir: t.TempDir()}
	if !raw {
		if _, err := runBinary(t.Context(), "atoll-hub", "backup", "--data-dir", s.data, "--file", s.filePath()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s.killHub()
	// A socket is no file to copy; a start creates it again.
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

func (s hubSnapshot) filePath() string { return filepath.Join(s.dir, "backup") }

func (s hubSnapshot) killHub() {
	s.t.Helper()
	takeDown(s.t, "hub")
}

func (s hubSnapshot) start() {
	s.t.Helper()
	bringBack(s.t, "hub")
}

// restoreHub kills the hub and starts it with the saved state. A backup is restored with a
// bumped revision; marked also sets the hub's restore marker.
func (s hubSnapshot) restoreHub(marked bool) {
	s.t.Helper()
	s.killHub()
	if err := os.Rename(s.data, filepath.Join(s.dir, "old")); err != nil {
		s.t.Fatal(err)
	}
	err := os.CopyFS(s.data, os.DirFS(filepath.Join(s.dir, "files")))
	if errors.Is(err, os.ErrNotExist) {
		_, err = runBinary(s.t.Context(), "atoll-hub", "restore", "--data-dir", s.data, "--file", s.filePath())
		if err == nil && !marked {
			err = os.Remove(filepath.Join(s.data, "restored"))
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// restoreStatus is the output of `atoll restore status -o json`.
type restoreStatus struct {
	Holding bool
	Rewound *struct {
		Reason string
		Told   *struct{ Clusters, Templates, Rows int }
	}
	Waiting []struct{ Bundle, Namespace, Plan string }
}

func lookAtRestore(ctx context.Context) (s restoreStatus, err error) {
	out, err := runBinary(ctx, "atoll", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "restore", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	return s, err
}

// hubHolds returns a check that the hub holds, and that the given number of members
// reported their memory: of that many templates and rows.
func hubHolds(reason string, clusters, templates, rows int) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s, err := lookAtRestore(ctx)
		switch {
		case err != nil:
			return err
		case !s.Holding || !strings.Contains(s.Rewound.Reason, reason):
			return fmt.Errorf("the hub does not hold because of %q: %+v", reason, s.Rewound)
		case s.Rewound.Told == nil && clusters > 0:
			return errors.New("no member reported its memory")
		case clusters > 0 && (s.Rewound.Told.Clusters != clusters || s.Rewound.Told.Templates != templates || s.Rewound.Told.Rows != rows):
			return fmt.Errorf("reported: %+v, want %d clusters, %d templates, %d rows", *s.Rewound.Told, clusters, templates, rows)
		}
		return nil
	}
}

// waitsFor returns a check that exactly these Bundles of the namespace wait for a decision.
func waitsFor(ns string, plans map[string]string, bundles ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s, err := lookAtRestore(ctx)
		if err != nil {
			return err
		}
		clear(plans)
		for _, w := range s.Waiting {
			if w.Namespace == ns {
				plans[w.Bundle] = w.Plan
			}
		}
		if len(plans) != len(bundles) {
			return fmt.Errorf("waiting: %v, want %v", plans, bundles)
		}
		for _, b := range bundles {
			if !slices.ContainsFunc(s.Waiting, func(w struct{ Bundle, Namespace, Plan string }) bool {
				return w.Namespace == ns && strings.Contains(w.Bundle, b)
			}) {
				return fmt.Errorf("waiting: %v, want %v", plans, bundles)
			}
		}
		return nil
	}
}

// planOf returns the plan of the Bundle whose name holds part.
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

// applyConfigMap applies a ConfigMap.
func applyConfigMap(t *testing.T, ns, name, clusters, value string) {
	t.Helper()
	apply(t, ns, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: $NS, annotations: {atoll.dev/clusters: %q}}\ndata: {value: %q}", name, clusters, value))
}

// valueIs returns a check of a ConfigMap's value; "": the member is not to have it.
func valueIs(cluster, ns, name, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, cluster, "v1", "ConfigMap", ns, name)
		if err != nil {
			return fmt.Errorf("%s: %w", cluster, err)
		}
		got := ""
		if o != nil {
			got, _, _ = unstructured.NestedString(o.Object, "data", "value")
		}
		if got != want {
			return fmt.Errorf("%s has ConfigMap %s at %q, want %q", cluster, name, got, want)
		}
		return nil
	}
}

// valueInAll returns a check in all of these members.
func valueInAll(clusters []string, ns, name, want string) func(ctx context.Context) error {
	var checks []func(ctx context.Context) error
	for _, c := range clusters {
		checks = append(checks, valueIs(c, ns, name, want))
	}
	return allChecks(checks...)
}

// hasWeb returns a check that Deployment web and its ConfigMap are in the members, or
// are not.
func hasWeb(clusters []string, ns string, want bool) func(ctx context.Context) error {
	var checks []func(ctx context.Context) error
	for _, c := range clusters {
		checks = append(checks, inCluster(c, "apps/v1", "Deployment", ns, "web", want), inCluster(c, "v1", "ConfigMap", ns, "web", want))
	}
	return allChecks(checks...)
}

// staysTrue checks that something goes on to be true for a while.
func staysTrue(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 3*time.Second, true, func(context.Context) (bool, error) {
		// A look may last longer than the time that is left.
		return false, check(t.Context())
	})
	if err != nil && !wait.Interrupted(err) {
		t.Fatalf("%s: %v", what, err)
	}
}

// bundlesReady returns a check that all Bundles of the namespace but some are Ready, or
// are on their way out.
func bundlesReady(ns string, but ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("atoll.dev/v1alpha1")
		list.SetKind("BundleList")
		if err := hubClient().List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, b := range list.Items {
			if b.GetDeletionTimestamp() != nil || slices.ContainsFunc(but, func(part string) bool { return strings.Contains(b.GetName(), part) }) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(b.Object, "status", "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == "Ready" && c["status"] != "True" || c["type"] == "RemovalHeld" && c["status"] == "True" {
					return fmt.Errorf("the Bundle %s: %v is %v: %v", b.GetName(), c["type"], c["status"], c["message"])
				}
			}
		}
		return nil
	}
}

// prepareBefore prepares the state before the snapshot.
func prepareBefore(t *testing.T, name string) (ns string) {
	t.Helper()
	ns = createNamespace(t, fmt.Sprintf("%s-%d", name, time.Now().Unix()))
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	for _, name := range []string{"edited", "lone", "same"} {
		applyConfigMap(t, ns, name, "*", "1")
	}
	applyConfigMap(t, ns, "moved", "member1,member2", "1")
	testwait.UntilNil(t, "delivery", allChecks(
		hasWeb(memberNames, ns, true), valueInAll(memberNames, ns, "edited", "1"), valueInAll(memberNames, ns, "lone", "1"), valueInAll(memberNames, ns, "same", "1"),
		valueIs("member1", ns, "moved", "1"), valueIs("member2", ns, "moved", "1"),
		fieldIs("hub", ns, "web", "status.availableReplicas", 2), bundlesReady(ns),
	))
	return ns
}

// changeAfter applies users' changes after the snapshot, and waits until the reachable
// members have them.
func changeAfter(t *testing.T, ns string, reached ...string) {
	t.Helper()
	remove(t, "apps/v1", "Deployment", ns, "web")
	remove(t, "v1", "ConfigMap", ns, "lone")
	applyConfigMap(t, ns, "edited", "*", "2")
	applyConfigMap(t, ns, "late", "*", "1")
	applyConfigMap(t, ns, "moved", "member2", "1")
	testwait.UntilNil(t, "what users did", allChecks(
		hasWeb(reached, ns, false), valueInAll(reached, ns, "lone", ""), valueInAll(reached, ns, "edited", "2"), valueInAll(reached, ns, "late", "1"),
		valueIs("member1", ns, "moved", ""), valueIs("member2", ns, "moved", "1"),
		inCluster("hub", "apps/v1", "Deployment", ns, "web", false),
	))
}

// membersUnchanged is how members stay while the hub holds: as users left them.
func membersUnchanged(ns string, reached ...string) func(ctx context.Context) error {
	return allChecks(
		hasWeb(reached, ns, false), valueInAll(reached, ns, "lone", ""), valueInAll(reached, ns, "edited", "2"), valueInAll(reached, ns, "late", "1"),
		valueInAll(reached, ns, "during", ""), valueIs("member1", ns, "moved", ""), valueIs("member2", ns, "moved", "1"),
	)
}

func cutLink(t *testing.T, member string) {
	t.Helper()
	if err := sharedWorld.lab.CutLink(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), member); err != nil {
			t.Error(err)
		}
	})
}

func healLink(t *testing.T, member string) {
	t.Helper()
	if err := sharedWorld.lab.HealLink(t.Context(), member); err != nil {
		t.Fatal(err)
	}
}

// acceptAtLast leaves no hub that holds to the tests that follow.
func acceptAtLast(t *testing.T) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if s, err := lookAtRestore(ctx); err == nil && s.Holding {
			if _, err := runBinary(ctx, "atoll", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "restore", "accept", "--hub"); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestARestoredHubIsTrusted(t *testing.T) {
	ns := prepareBefore(t, "rewind-hub")
	s := saveHub(t, false)
	cutLink(t, "member3")
	changeAfter(t, ns, "member1", "member2")
	acceptAtLast(t)
	s.restoreHub(true)
	testwait.UntilNil(t, "the hub holds", hubHolds("restored at", 2, 2, 1))
	if text := mustCLI(t, "restore", "status"); !strings.Contains(text, "The hub holds since") || !strings.Contains(text, "Deployment "+ns+"/web was deleted") {
		t.Errorf("restore status says:\n%s", text)
	}
	applyConfigMap(t, ns, "during", "*", "1")
	staysTrue(t, "nothing is issued", membersUnchanged(ns, "member1", "member2"))

	mustCLI(t, "restore", "accept", "--hub")
	healLink(t, "member3")
	testwait.UntilNil(t, "what the hub has is everywhere", allChecks(
		hasWeb(memberNames, ns, true), valueInAll(memberNames, ns, "lone", "1"), valueInAll(memberNames, ns, "edited", "1"),
		valueInAll(memberNames, ns, "same", "1"), valueInAll(memberNames, ns, "during", "1"),
		valueIs("member1", ns, "moved", "1"), valueIs("member2", ns, "moved", "1"),
	))
	testwait.UntilNil(t, "statuses", allChecks(fieldIs("hub", ns, "web", "status.availableReplicas", 2), bundlesReady(ns)))
	testwait.UntilNil(t, "what the hub does not know is kept and listed", allChecks(
		valueIs("member1", ns, "late", "1"), valueIs("member2", ns, "late", "1"), listsUnclaimed("member1"), listsUnclaimed("member2"),
	))
}

// listsUnclaimed returns a check that the Cluster lists content without a row.
func listsUnclaimed(cluster string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster)
		if err != nil || o == nil {
			return fmt.Errorf("no Cluster %s (%v)", cluster, err)
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Unclaimed" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("the Cluster %s lists nothing as unclaimed", cluster)
	}
}

func TestARestoredHubTrustsItsMembers(t *testing.T) {
	ns := prepareBefore(t, "rewind-members")
	s := saveHub(t, true)
	cutLink(t, "member3")
	changeAfter(t, ns, "member1", "member2")
	cutLink(t, "member2")
	acceptAtLast(t)
	s.restoreHub(false)
	testwait.UntilNil(t, "the hub holds", hubHolds("an agent saw revision", 1, 2, 1))
	applyConfigMap(t, ns, "during", "*", "1")
	staysTrue(t, "nothing is issued", membersUnchanged(ns, "member1", "member2"))

	mustCLI(t, "restore", "accept", "--members")
	plans := map[string]string{}
	testwait.UntilNil(t, "removals are held", allChecks(
		valueInAll([]string{"member1"}, ns, "during", "1"), valueInAll([]string{"member1"}, ns, "edited", "1"),
		waitsFor(ns, plans, "web", "lone", "moved"),
	))
	healLink(t, "member2")
	healLink(t, "member3")
	both := []string{"member1", "member2"}
	settled := allChecks(
		valueInAll(memberNames, ns, "during", "1"), valueInAll(memberNames, ns, "edited", "1"), valueInAll(memberNames, ns, "same", "1"), valueInAll(both, ns, "late", "1"),
		// Nothing comes back, and nothing is deleted that was not confirmed.
		hasWeb(both, ns, false), valueInAll(both, ns, "lone", ""), hasWeb([]string{"member3"}, ns, true), valueIs("member3", ns, "lone", "1"),
		valueIs("member1", ns, "moved", ""), valueIs("member2", ns, "moved", "1"), valueIs("member3", ns, "moved", ""),
	)
	testwait.UntilNil(t, "members catch up", allChecks(settled, bundlesReady(ns, "web", "lone", "moved")))
	staysTrue(t, "it waits", settled)

	for _, name := range []string{"web", "lone", "moved"} {
		bundle, plan := planOf(t, plans, name)
		mustCLI(t, "confirm", bundle, "-n", ns, "--plan", plan)
	}
	testwait.UntilNil(t, "what was confirmed is gone", allChecks(
		hasWeb(memberNames, ns, false), valueInAll(memberNames, ns, "lone", ""), valueIs("member1", ns, "moved", ""), valueIs("member2", ns, "moved", "1"),
		inCluster("hub", "apps/v1", "Deployment", ns, "web", false), inCluster("hub", "v1", "ConfigMap", ns, "lone", false),
		waitsFor(ns, plans), bundlesReady(ns),
	))
	applyConfigMap(t, ns, "moved", "member1", "2")
	testwait.UntilNil(t, "a new placement is a new word", allChecks(valueIs("member1", ns, "moved", "2"), valueIs("member2", ns, "moved", "")))
}

func TestAStoreRestoredWithABumpedRevision(t *testing.T) {
	ns := prepareBefore(t, "rewind-bumped")
	s := saveHub(t, false)
	changeAfter(t, ns, memberNames...)
	for _, m := range memberNames {
		cutLink(t, m)
	}
	acceptAtLast(t)
	s.restoreHub(false)
	// The hub holds by itself: no agent is connected, and there is no marker.
	testwait.UntilNil(t, "the hub holds", hubHolds("revision bump", 0, 0, 0))
	mustCLI(t, "restore", "accept", "--members")
	for _, m := range memberNames {
		healLink(t, m)
	}
	plans := map[string]string{}
	testwait.UntilNil(t, "removals are held", allChecks(waitsFor(ns, plans, "web", "lone", "moved"), valueInAll(memberNames, ns, "edited", "1")))
	staysTrue(t, "nothing comes back", allChecks(hasWeb(memberNames, ns, false), valueInAll(memberNames, ns, "lone", ""), valueIs("member1", ns, "moved", "")))
	for _, name := range []string{"web", "lone", "moved"} {
		bundle, plan := planOf(t, plans, name)
		mustCLI(t, "restore", "keep", bundle, "-n", ns, "--plan", plan)
	}
	testwait.UntilNil(t, "what was kept is back", allChecks(
		hasWeb(memberNames, ns, true), valueInAll(memberNames, ns, "lone", "1"), valueIs("member1", ns, "moved", "1"), valueIs("member2", ns, "moved", "1"),
		fieldIs("hub", ns, "web", "status.availableReplicas", 2), waitsFor(ns, plans), bundlesReady(ns),
	))
	// A member that connects again reports again; decisions stay.
	cutLink(t, "member1")
	healLink(t, "member1")
	applyConfigMap(t, ns, "same", "*", "2")
	testwait.UntilNil(t, "member1 is back", valueInAll(memberNames, ns, "same", "2"))
	staysTrue(t, "what was kept stays", allChecks(hasWeb(memberNames, ns, true), valueIs("member1", ns, "moved", "1"), waitsFor(ns, plans)))
}

func TestTheHubRestartsWhileMembersAreAway(t *testing.T) {
	ns := prepareBefore(t, "cold")
	for _, m := range memberNames {
		cutLink(t, m)
	}
	remove(t, "v1", "ConfigMap", ns, "lone")
	applyConfigMap(t, ns, "moved", "member2,member3", "1")
	s := hubSnapshot{t: t}
	s.killHub()
	s.start()
	applyConfigMap(t, ns, "edited", "*", "2")
	staysTrue(t, "members keep what they have", allChecks(
		hasWeb(memberNames, ns, true), valueInAll(memberNames, ns, "lone", "1"), valueInAll(memberNames, ns, "edited", "1"), valueIs("member1", ns, "moved", "1"),
	))
	s.killHub()
	s.start()
	for _, m := range memberNames {
		healLink(t, m)
	}
	testwait.UntilNil(t, "members catch up", allChecks(
		hasWeb(memberNames, ns, true), valueInAll(memberNames, ns, "lone", ""), valueInAll(memberNames, ns, "edited", "2"), valueInAll(memberNames, ns, "same", "1"),
		valueIs("member1", ns, "moved", ""), valueIs("member2", ns, "moved", "1"), valueIs("member3", ns, "moved", "1"),
		inCluster("hub", "v1", "ConfigMap", ns, "lone", false), fieldIs("hub", ns, "web", "status.availableReplicas", 2), bundlesReady(ns),
	))
}
