package apply

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// runEngine runs the engine until the test's function returns.
func runEngine(t *testing.T, e *stubEngine, while func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	while(ctx)
	cancel()
	<-done
}

// ownNamespace is an object of a namespace that the agent made.
const ownNamespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n1, labels: {" + atoll.LabelBundleUID + ": b1, " + ownership.LabelTemplateUID + ": namespace}}"

// An agent that leaves releases what it holds with a note, and forgets it. Its namespaces go only if that is asked for and possible.
func TestLeavingReleasesEverything(t *testing.T) {
	noted := []string{"MERGE conf " + atoll.FieldManager}
	released := append(noted[:1:1], "MERGE shop "+atoll.FieldManager)
	deleted := append(noted[:1:1], "DELETE shop")
	foreign := "Namespace shop is kept: deleting it would take along 1 objects that Atoll did not apply (ConfigMap shop/conf): delete those in the member first"
	unseen := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kube-root-ca.crt, namespace: shop}"
	for name, c := range map[string]struct {
		live   string
		clean  bool
		writes []string
		left   []string
	}{
		"namespaces stay":         {liveConf("x"), false, released, nil},
		"a namespace is kept":     {liveConf("x"), true, released, []string{foreign}},
		"an empty namespace goes": {unseen, true, deleted[1:], nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newMemoryMember(t, ownNamespace, c.live)
				e := newStubEngine(t, api, []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, newManifest("b1", 3, confItem("x")))
				runEngine(t, e, func(ctx context.Context) {
					left, err := e.ReleaseAll(ctx, c.clean, func(why string) { t.Errorf("it waits for %q", why) })
					if err != nil || !slices.Equal(left, c.left) {
						t.Errorf("left are %q, %v; want %q", left, err, c.left)
					}
				})
				api.expectWrites(t, c.writes...)
				if len(e.ReceivedManifests()) != 0 || len(e.listDirty()) != 0 || len(e.book.RecordedKeys()) != 0 {
					t.Errorf("held are %+v, recorded %v", e.ReceivedManifests(), e.book.RecordedKeys())
				}
				if space := api.objects["/api/v1/namespaces/shop"]; space != nil {
					notes := space["metadata"].(map[string]any)["annotations"].(map[string]any)
					if notes[ownership.AnnotationLeftBehind] != implicitTemplate {
						t.Errorf("the notes of the namespace are %v", notes)
					}
				}
			})
		})
	}
}

// Leaving ends with the agent, and fails with the store.
func TestLeavingEndsWithItsContext(t *testing.T) {
	refused := errors.New("refused")
	busy := refusals{"GET shop": memberBusy()}
	for name, c := range map[string]struct {
		records []ownership.Record
		bundles []atoll.Manifest
		refused refusals
		refuses error
		clean   bool
		want    error
		waits   []string
		takes   time.Duration
	}{
		"a Bundle is held":           {[]ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, []atoll.Manifest{newManifest("b1", 1, confItem("x"))}, refusals{"GET conf": memberBusy()}, nil, false, context.Canceled, []string{"ConfigMap shop/conf: busy"}, time.Minute},
		"a Bundle is not stored":     {nil, []atoll.Manifest{newManifest("b1", 1)}, nil, refused, false, refused, nil, 0},
		"a removal is not forgotten": {nil, []atoll.Manifest{remove("b1", 1)}, nil, refused, false, refused, nil, 0},
		"a namespace is released":    {[]ownership.Record{shopNamespace}, nil, busy, nil, false, context.Canceled, []string{"busy"}, time.Minute},
		"a namespace goes":           {[]ownership.Record{shopNamespace}, nil, busy, nil, true, context.Canceled, []string{"Namespace shop: busy"}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []string{ownNamespace}
				if len(c.bundles) > 0 {
					objects = append(objects, liveConf("x"))
				}
				e := newStubEngine(t, refuseSome(newMemoryMember(t, objects...), c.refused), c.records, c.bundles...)
				e.refuses = c.refuses
				runEngine(t, e, func(ctx context.Context) {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					time.AfterFunc(time.Minute, cancel)
					var reported []string
					began := time.Now()
					left, err := e.ReleaseAll(ctx, c.clean, func(why string) { reported = append(reported, why) })
					if !errors.Is(err, c.want) || left != nil || !slices.Equal(reported, c.waits) {
						t.Errorf("left are %q, %v; it waited for %q, want %q", left, err, reported, c.waits)
					}
					if took := time.Since(began); took != c.takes {
						t.Errorf("it takes %s, want %s", took, c.takes)
					}
				})
				if r := e.recordOf(shopNamespace.Key); r.Parting {
					t.Error("a namespace that the hub may take back is to go")
				}
			})
		})
	}
}

// A Bundle of which only claims are known is released, too.
func TestClaimsOfUnknownBundlesAreReleased(t *testing.T) {
	record := wantedRecord(confItem("x"))
	record.Claims = map[string]ownership.Claim{"b8": {State: ownership.Kept, Template: "t"}}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{record, shopNamespace}, newManifest("b1", 1))
	for range 2 {
		got := e.storedOrClaimingBundles()
		if slices.Sort(got); !slices.Equal(got, []string{"b1", "b8"}) {
			t.Errorf("they are %q", got)
		}
	}
	if err := e.releaseBundle(t.Context(), "b8"); err != nil {
		t.Fatal(err)
	}
	if m := e.bundles[0].Holding.Manifest; m.Bundle != "b8" || m.Generation != 1 || !m.Remove || m.Removal != v1alpha1.RemoveOrphan {
		t.Errorf("stored is %+v", m)
	}
}

// A released Bundle becomes a removal that leaves its objects with a note. An ordered removal goes on, without moves to wait for.
func TestAReleasedBundleIsARemoval(t *testing.T) {
	moved, deleted := movedTombstone(confItem("x"), "b2"), tombstoneOf(webItem("1"))
	stays := moved
	stays.MovedTo, stays.Orphan = nil, true
	removal := withTombstones(remove("b1", 5), moved, deleted)
	decommissioned := removal
	decommissioned.ClusterDecommissioned = true
	parts := withTombstones(newManifest("b1", 5, confItem("x")), moved, deleted)
	parts.Namespaces, parts.DeletedNamespaces = map[string]atoll.NamespaceMeta{"shop": {}}, []string{"blog"}
	parts.Interpreters = newInterpreters(v1alpha1.InterpreterTarget{Kinds: []string{"ConfigMap"}}, "so")
	for name, c := range map[string]struct {
		held           atoll.Manifest
		stored         bool
		removal        v1alpha1.RemovalMode
		decommissioned bool
		tombstones     []atoll.Tombstone
	}{
		"a Bundle":                         {parts, true, v1alpha1.RemoveOrphan, true, []atoll.Tombstone{deleted}},
		"a removal":                        {withTombstones(remove("b1", 5), deleted), false, "", false, nil},
		"a removal with a move":            {removal, true, v1alpha1.RemoveDelete, false, []atoll.Tombstone{stays, deleted}},
		"a removal that was left and move": {decommissioned, true, v1alpha1.RemoveDelete, true, []atoll.Tombstone{deleted}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), nil, c.held)
			if err := e.releaseBundle(t.Context(), "b1"); err != nil || (len(e.bundles) == 1) != c.stored {
				t.Fatalf("stored is %+v, %v", e.bundles, err)
			}
			if !c.stored {
				return
			}
			got := e.bundles[0].Holding.Manifest
			want := atoll.Manifest{Bundle: "b1", Generation: 5, Remove: true, Removal: c.removal, ClusterDecommissioned: c.decommissioned, Tombstones: c.tombstones, ConflictResolution: got.ConflictResolution}
			want.Content = got.Content
			expectEqualJSON(t, got, want)
			if got.Content == "" || got.Content == c.held.Content {
				t.Errorf("the content hash is %q", got.Content)
			}
			if len(c.held.Tombstones) != 2 || c.held.Tombstones[0].Orphan {
				t.Errorf("the held manifest was changed: %+v", c.held.Tombstones)
			}
		})
	}
}

// The first blocker by its name is reported.
func TestTheBlockerOfARemoval(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), nil)
	e.holdTask(confKey)
	if got := e.removalBlocker(); got != "" {
		t.Errorf("without a failure it is %q", got)
	}
	for _, name := range []string{"c", "a", "b"} {
		key := confKey
		key.Name = name
		e.holdTask(key).failure = &Failure{Message: "why " + name}
	}
	for range 20 { // in any order of the tasks
		if got := e.removalBlocker(); got != "ConfigMap shop/a: why a" {
			t.Errorf("it is %q", got)
		}
	}
}

// The namespaces that the agent made are listed by name.
func TestNamespacesThatTheAgentMade(t *testing.T) {
	made := func(name string, implicit bool) ownership.Record {
		return ownership.Record{Key: atoll.NamespaceKey(name), UID: name, Implicit: implicit}
	}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{made("c", true), made("a", true), made("b", false), made("d", true), wantedRecord(confItem("x"))})
	for range 2 {
		if got := e.madeNamespaces(); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("they are %q", got)
		}
	}
}

// A namespace that goes is waited for. A reason that lasts until a person acts ends the wait.
func TestANamespaceThatGoesIsWaitedFor(t *testing.T) {
	conditions := `, status: {conditions: [odd, {type: A, status: "True", message: content remains}, {type: B, status: "False", message: fine}, {type: C, status: "True", message: finalizers remain}, {type: D, status: "True"}]}}`
	terminating := &Failure{Reason: atoll.ReasonTerminating, Message: "its deletion has begun"}
	for name, c := range map[string]struct {
		failure  *Failure
		live     string
		refused  refusals
		why      string
		ends     bool
		reported []string
	}{
		"foreign objects":          {failure: &Failure{Reason: atoll.ReasonForeignObjects, Message: "foreign"}, why: "foreign"},
		"it is not known what":     {failure: &Failure{Reason: atoll.ReasonAPISilent, Message: "silent"}, why: "silent"},
		"the policy":               {failure: &Failure{Reason: atoll.ReasonDeniedByPolicy, Message: "denied"}, why: "denied"},
		"the rights":               {failure: &Failure{Reason: atoll.ReasonForbidden, Message: "forbidden"}, why: "forbidden"},
		"an admission rule":        {failure: &Failure{Reason: atoll.ReasonAdmissionDenied, Message: "rule"}, why: "rule"},
		"no reason":                {ends: true},
		"its deletion has begun":   {failure: terminating, live: conditions, ends: true, reported: []string{"Namespace shop: content remains; finalizers remain"}},
		"begun, and no reason":     {failure: terminating, live: "}", ends: true, reported: []string{"Namespace shop: its deletion has begun"}},
		"begun, and not readable":  {failure: terminating, live: conditions, refused: refusals{"GET shop": memberBusy()}, ends: true, reported: []string{"Namespace shop: its deletion has begun"}},
		"another reason that goes": {failure: &Failure{Reason: atoll.ReasonConflict, Message: "conflict"}, live: conditions, ends: true, reported: []string{"Namespace shop: conflict"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := ownNamespace
				if c.live != "" {
					live = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, uid: n1}" + c.live
				}
				e := newStubEngine(t, refuseSome(newMemoryMember(t, live), c.refused), []ownership.Record{shopNamespace})
				e.holdTask(shopNamespace.Key).failure = c.failure
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var reported []string
				why, err := e.waitForNamespaceGone(ctx, shopNamespace.Key, &blockerReporter{tell: func(why string) { reported = append(reported, why) }})
				if why != c.why || (err != nil) != c.ends || !slices.Equal(reported, c.reported) {
					t.Errorf("it stays for %q, %v, and %q was reported; want %q, %q", why, err, reported, c.why, c.reported)
				}
				if err != nil && (!errors.Is(err, context.DeadlineExceeded) || err.Error() != "wait for namespace shop to go: context deadline exceeded") {
					t.Errorf("it ends with %v", err)
				}
			})
		})
	}
	e := newStubEngine(t, newMemoryMember(t), nil)
	if why, err := e.waitForNamespaceGone(t.Context(), shopNamespace.Key, nil); why != "" || err != nil {
		t.Errorf("one that is gone stays for %q, %v", why, err)
	}
}

// The reason of a namespace that is being deleted is read every two seconds, and not at every look.
func TestTheReasonOfANamespaceIsReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		e := newStubEngine(t, countReads(newMemoryMember(t, ownNamespace), "/api/v1/namespaces/shop", &reads), []ownership.Record{shopNamespace})
		e.holdTask(shopNamespace.Key).failure = &Failure{Reason: atoll.ReasonTerminating, Message: "begun"}
		ctx, cancel := context.WithTimeout(t.Context(), 4*leaveTell+leaveLook/2)
		defer cancel()
		_, _ = e.waitForNamespaceGone(ctx, shopNamespace.Key, &blockerReporter{tell: func(string) {}})
		if reads != 5 {
			t.Errorf("it was read %d times in 8 seconds, want 5", reads)
		}
	})
}
