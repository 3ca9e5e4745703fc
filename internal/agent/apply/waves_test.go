package apply

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
)

// inWave returns the item in a wave.
func inWave(wave int32, it atoll.RenderedItem) atoll.RenderedItem {
	it.Wave = wave
	return it
}

// keyItem returns an item of a Secret.
func keyItem() atoll.RenderedItem {
	return atoll.RenderedItem{
		Key: atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "key"}, APIVersion: "v1", UID: "t", Hash: "hs",
		Object: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"key","namespace":"shop"}}`),
	}
}

// threeWaves is a manifest with a Deployment, a ConfigMap and a Secret in waves.
func threeWaves(generation int64, replicas, value string) atoll.Manifest {
	return newManifest("b1", generation, inWave(2, keyItem()), inWave(0, confItem(value)), inWave(-1, webItem(replicas)))
}

// startRun runs the engine until the test ends.
func startRun(t *testing.T, e *stubEngine) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	synctest.Wait()
	return func() { cancel(); <-done }
}

// seeWeb reports the Deployment as the watch would, with a health.
func (e *stubEngine) seeWeb(version string, health atoll.Health) {
	key := webItem("").Key
	e.ObjectSeen(observe.View{Key: key, UID: e.recordOf(key).UID, Label: "b1", Template: "t", Version: version, Health: health, Owned: e.recordOf(key).Owned})
	synctest.Wait()
}

// expectWaits compares, for each item of b1 that waits for its wave, its name with its message.
func (e *stubEngine) expectWaits(t *testing.T, state atoll.RowState, want ...string) {
	t.Helper()
	s, _ := e.StatusOf("b1", nil, testNow)
	var got []string
	for _, it := range s.Items {
		if it.Reason == atoll.ReasonWaitsForWave {
			got = append(got, it.Key.Name+": "+it.Message)
			if it.Error || it.Health != atoll.Progressing || it.Since != testNow.Unix() {
				t.Errorf("it waits as %+v", it)
			}
		}
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w || s.State != state {
		t.Errorf("the row is %s, and its items wait:\n%s\nwant %s:\n%s", s.State, g, state, w)
	}
}

const (
	confWaits = "conf: wave 0 waits until wave -1 is applied and healthy, now for Deployment shop/web"
	keyWaits  = "key: wave 2 waits until wave -1 is applied and healthy, now for Deployment shop/web"
	applyWeb  = "APPLY web " + atoll.FieldManager
	applyKey  = "APPLY key " + atoll.FieldManager
)

// Objects are created wave by wave, changed wave by wave, and go in reverse order. An unhealthy wave holds the later ones.
func TestWavesFollowHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t)
		e := newStubEngine(t, api, []ownership.Record{shopNamespace})
		defer startRun(t, e)()
		e.upsertAndWait(t, threeWaves(1, "1", "x"))
		api.expectWrites(t, applyWeb)
		e.expectWaits(t, atoll.RowProgressing, confWaits, keyWaits)
		e.seeWeb("2", atoll.Degraded)
		api.expectWrites(t)
		e.expectWaits(t, atoll.RowDegraded, confWaits, keyWaits)
		e.takeChanged()
		e.seeWeb("3", atoll.Healthy)
		api.expectWrites(t, applyConf, applyKey) // a ConfigMap is healthy at once
		e.expectWaits(t, atoll.RowReady)
		if got := e.takeChanged(); len(got) == 0 {
			t.Error("the opened waves are not reported")
		}

		// An earlier wave that gets worse takes nothing back.
		e.seeWeb("4", atoll.Degraded)
		api.expectWrites(t)
		e.expectWaits(t, atoll.RowDegraded)

		// An edit of the first wave alone; then one of both, of which the later one is held.
		e.upsertAndWait(t, threeWaves(2, "2", "x"))
		api.expectWrites(t, applyWeb)
		e.expectWaits(t, atoll.RowProgressing)
		e.upsertAndWait(t, threeWaves(3, "2", "y"))
		api.expectWrites(t)
		e.expectWaits(t, atoll.RowProgressing, confWaits)
		// Drift of an object that waits does not bring its new content.
		e.holdTask(confKey).correct = true
		e.nextPass(confKey)
		e.wakeRun()
		synctest.Wait()
		api.expectWrites(t)
		e.seeWeb("5", atoll.Healthy)
		api.expectWrites(t, applyConf)
		e.expectWaits(t, atoll.RowReady)

		e.upsertAndWait(t, atoll.Manifest{Bundle: "b1", Generation: 4, Remove: true})
		api.expectWrites(t, "DELETE key", "APPLY shop "+atoll.FieldManager, "DELETE conf", "DELETE web") // the namespace is labelled again
		if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowRemoved || len(e.gates) > 0 {
			t.Errorf("the status is %+v", s)
		}
	})
}

// An agent that starts again holds the wave that it held, and opens it by what it sees.
func TestWavesAreHeldAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}")
		e := newStubEngine(t, api, []ownership.Record{shopNamespace, wantedRecord(inWave(-1, webItem("1")))}, threeWaves(1, "1", "x"))
		defer startRun(t, e)()
		for _, it := range threeWaves(1, "1", "x").Items {
			e.nextPass(it.Key)
		}
		e.wakeRun()
		synctest.Wait()
		api.expectWrites(t)
		e.expectWaits(t, atoll.RowProgressing, confWaits, keyWaits)
		e.seeWeb("2", atoll.Healthy)
		api.expectWrites(t, applyConf, applyKey)
	})
}

// An object that cannot be rendered, or is refused, holds the later waves.
func TestAFailureHoldsLaterWaves(t *testing.T) {
	failed := atoll.RenderedItem{Key: confKey, APIVersion: "v1", UID: "t", Hash: "e", Error: "a rule does not apply"}
	for name, m := range map[string]atoll.Manifest{
		"not rendered": newManifest("b1", 1, failed, inWave(1, keyItem())),
		"not served":   newManifest("b1", 1, atoll.RenderedItem{Key: atoll.ItemKey{Group: "none.io", Kind: "None", Namespace: "shop", Name: "conf"}, APIVersion: "none.io/v1", UID: "t", Hash: "n", Object: []byte("{}")}, inWave(1, keyItem())),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newMemoryMember(t)
				e := newStubEngine(t, api, []ownership.Record{shopNamespace}, m)
				defer startRun(t, e)()
				for i := range m.Items {
					e.nextPass(m.Items[i].Key)
				}
				e.wakeRun()
				synctest.Wait()
				api.expectWrites(t)
				e.expectWaits(t, atoll.RowFailed, "key: wave 1 waits until wave 0 is applied and healthy, now for "+m.Items[0].Key.Kind+" shop/conf")
			})
		})
	}
}

// A message names no Secret.
func TestAWaitNamesNoSecret(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, newManifest("b1", 1, keyItem(), inWave(1, confItem("x"))))
	e.expectWaits(t, atoll.RowProgressing, "conf: wave 1 waits until wave 0 is applied and healthy, now for a Secret")
}

// The waves of a Bundle hold no object that another Bundle applies.
func TestWavesAreThoseOfTheOwner(t *testing.T) {
	other := newManifest("b2", 1, confItem("x"))
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, other, newManifest("b1", 1, webItem("1"), inWave(1, confItem("x"))))
	e.mu.Lock()
	r, _ := e.book.Record(confKey)
	verb := e.pendingWorkFor(confKey).Verb
	e.mu.Unlock()
	if r.Owner != "b2" || verb != ownership.Apply {
		t.Errorf("the object of %s waits: %s", r.Owner, verb)
	}
}

// Two Bundles that have the same objects in opposite waves do not wait for each other.
func TestOppositeWavesOfTwoBundlesAreApplied(t *testing.T) {
	b1 := newManifest("b1", 1, inWave(0, confItem("x")), inWave(1, webItem("1")))
	b2 := newManifest("b2", 1, inWave(0, webItem("1")), inWave(1, confItem("x")))
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, b1, b2)
	for _, owners := range [][2]string{{"b1", "b2"}, {"b2", "b1"}} {
		for i, item := range []atoll.RenderedItem{b1.Items[0], b2.Items[0]} {
			r, _ := e.book.Record(item.Key)
			if e.waitsForWave(owners[i], &item, r) {
				t.Errorf("%s of %s waits", item.Key, owners[i])
			}
		}
	}
	third := newManifest("b3", 1, inWave(0, confItem("x")), inWave(1, keyItem()))
	e = newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, third)
	if r, _ := e.book.Record(keyItem().Key); !e.waitsForWave("b3", &third.Items[1], r) {
		t.Error("an object that no other Bundle has does not wait")
	}
}

// A removal says how many objects of which wave go first.
func TestWhatARemovalWaitsFor(t *testing.T) {
	for want, wait := range map[string]ownership.LeavingWait{
		"": {Wave: 3},
		"it is removed last, after 1 other object of the Bundle": {Objects: 1, IsLast: true},
		"it is removed after 2 objects of wave -1 of the Bundle": {Objects: 2, Wave: -1},
		"it is removed after 1 object of wave 4 of the Bundle":   {Objects: 1, Wave: 4, IsLast: true},
		"it is removed after 12 objects of wave 0 of the Bundle": {Objects: 12},
	} {
		if got := describeLeavingWait(wait); got != want {
			t.Errorf("%+v is %q", wait, got)
		}
	}
}

// A wave does not wait until a volume claim is bound, but it waits for one that is refused, lost, or not applied yet.
func TestNoWaveWaitsForAnUnboundClaim(t *testing.T) {
	claim := atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	pending := report.Item{Key: claim, Applied: true, Observed: true, Health: atoll.Progressing, Why: atoll.ReasonPending}
	for name, c := range map[string]struct {
		edit func(*report.Item)
		want bool
	}{
		"unbound":         {func(*report.Item) {}, true},
		"not applied":     {func(it *report.Item) { it.Applied = false }, false},
		"not seen":        {func(it *report.Item) { it.Observed = false }, false},
		"refused":         {func(it *report.Item) { it.Reason = atoll.ReasonForbidden }, false},
		"not rendered":    {func(it *report.Item) { it.RenderError = "no" }, false},
		"lost":            {func(it *report.Item) { it.Health = atoll.Degraded }, false},
		"by a rule":       {func(it *report.Item) { it.Why = atoll.ReasonHealthRuleUnmet }, false},
		"of another kind": {func(it *report.Item) { it.Key.Kind = "Pod" }, false},
	} {
		it := pending
		c.edit(&it)
		if got := isUnboundClaim(&it); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t)
		item := atoll.RenderedItem{Key: claim, APIVersion: "v1", UID: "t", Hash: "hc", Object: []byte(`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data","namespace":"shop"}}`)}
		e := newStubEngine(t, api, []ownership.Record{shopNamespace}, newManifest("b1", 1, item, inWave(1, confItem("x"))))
		e.nextPass(claim)
		defer startRun(t, e)()
		api.expectWrites(t, "APPLY data "+atoll.FieldManager, applyConf)
	})
}

// An autoscaler whose removal waits for a later wave scales on: its target's replicas stay with the member.
func TestAnAutoscalerThatWaitsScalesOn(t *testing.T) {
	leaving := func(it atoll.RenderedItem, wave int32) ownership.Record {
		r := wantedRecord(it)
		r.Claims["b1"] = ownership.Claim{State: ownership.Leaving, Template: "t", Wave: wave}
		return r
	}
	records := []ownership.Record{shopNamespace, wantedRecord(webItem("2")), leaving(hpaItem("web"), 0), leaving(keyItem(), 1)}
	e := newStubEngine(t, newMemoryMember(t), records, newManifest("b1", 1, webItem("2"), confItem("x")))
	for _, r := range records[2:] {
		e.book.RestoreRecord(r)
	}
	if verb := e.book.Next(hpaItem("web").Key).Verb; verb != ownership.Nothing {
		t.Fatalf("the autoscaler does not wait: %s", verb)
	}
	web := wantedRecord(webItem("2"))
	web.Left = []string{replicas}
	if got := e.keepReplicasStillScaled(&web, nil); !slices.Equal(got, web.Left) {
		t.Errorf("left are %q", got)
	}
}
