package apply

import (
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// hpaItem returns an item of an autoscaler of a Deployment; empty: of nothing.
func hpaItem(target string) atoll.RenderedItem {
	spec := `{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"` + target + `"}}`
	return atoll.RenderedItem{
		Key: atoll.ItemKey{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "scaler"}, APIVersion: "autoscaling/v2", UID: "t", Hash: "h" + target,
		Object: []byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"scaler","namespace":"shop"},"spec":` + spec + `}`),
	}
}

// Replicas stay with the member while an autoscaler that may have scaled the object is not gone, or has its old target.
func TestReplicasStayWithTheMemberWhileAnAutoscalerEnds(t *testing.T) {
	wanted, hpa := ownership.Claim{State: ownership.Wanted, Template: "t"}, hpaItem("web")
	newTarget := hpaItem("api")
	leaving := ownership.Claim{State: ownership.Leaving, Template: "t"}
	orphaned := leaving
	orphaned.Orphan = true
	for name, c := range map[string]struct {
		claim    ownership.Claim
		uid      string
		template string
		item     atoll.RenderedItem
		kind     string
		want     bool
	}{
		"it is deleted":                       {claim: leaving, uid: "live", template: "t", want: true},
		"it is released":                      {claim: orphaned, uid: "live", template: "t", want: true},
		"it may exist after an interruption":  {claim: leaving, template: "t", want: true},
		"it is replaced for another template": {claim: wanted, uid: "live", template: "t0", item: hpa, want: true},
		"it is to have another target":        {claim: wanted, uid: "live", template: "t", item: newTarget, want: true},
		"it is to be made":                    {claim: wanted, template: "", item: hpa},
		"it is as it should be":               {claim: wanted, uid: "live", template: "t", item: hpa},
		"another kind is deleted":             {claim: leaving, uid: "live", template: "t", kind: "ScaledObject"},
	} {
		t.Run(name, func(t *testing.T) {
			record := wantedRecord(hpa)
			record.Claims["b1"], record.UID, record.Template = c.claim, c.uid, c.template
			if c.kind != "" {
				record.Key.Kind = c.kind
			}
			records := []ownership.Record{shopNamespace, wantedRecord(webItem("2")), record}
			m := newManifest("b1", 1, webItem("2"))
			if c.item.Hash != "" {
				m.Items = append(m.Items, c.item)
			}
			e := newStubEngine(t, newMemoryMember(t), records, m)
			if c.claim.State == ownership.Leaving {
				e.book.RestoreRecord(record)
			}
			web := wantedRecord(webItem("2"))
			web.Left = []string{replicas}
			now, want := []string{"/spec/z"}, []string{"/spec/z"}
			if c.want {
				want = []string{replicas, "/spec/z"}
			}
			if got := e.keepReplicasStillScaled(&web, now); !slices.Equal(got, want) || !slices.Equal(now, []string{"/spec/z"}) {
				t.Errorf("left are %q, want %q", got, want)
			}
			both := []string{replicas, "/spec/z"}
			if got := e.keepReplicasStillScaled(&web, both); !slices.Equal(got, both) {
				t.Errorf("left twice: %q", got)
			}
			web.Left = []string{"/spec/z"}
			if got := e.keepReplicasStillScaled(&web, now); !slices.Equal(got, now) {
				t.Errorf("replicas that were not left before are left: %q", got)
			}
		})
	}
}

// The member owns the fields that the hub names, and the replicas of what an autoscaler of any manifest targets.
func TestFieldsThatTheMemberOwns(t *testing.T) {
	item := webItem("2")
	for name, c := range map[string]struct {
		named  []string
		target string
		want   []string
	}{
		"none":                            {nil, "", nil},
		"named ones, sorted":              {[]string{"/spec/z", "/spec/a"}, "", []string{"/spec/a", "/spec/z"}},
		"those of an autoscaler's target": {[]string{"/spec/z"}, "web", []string{replicas, "/spec/z"}},
		"named and of an autoscaler":      {[]string{replicas}, "web", []string{replicas}},
		"those of another target":         {nil, "api", nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace}, newManifest("b1", 1, item), newManifest("b2", 1, hpaItem(c.target)))
			item.MemberOwned = c.named
			if got := e.memberOwnedFields(&item); !slices.Equal(got, c.want) {
				t.Errorf("they are %q, want %q", got, c.want)
			}
		})
	}
}

// A new target of an autoscaler makes the old and the new target due. Other content makes none due.
func TestTargetsOfAutoscalersAreLookedAt(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace})
	unreadable := hpaItem("x")
	unreadable.Object = []byte("{")
	failed := hpaItem("x")
	failed.Error = "it cannot be rendered"
	for _, c := range []struct {
		items []atoll.RenderedItem
		want  []string // targets that are due
		held  int
	}{
		{[]atoll.RenderedItem{webItem("2"), hpaItem("web")}, []string{"web"}, 1},
		{[]atoll.RenderedItem{hpaItem("api")}, []string{"api", "web"}, 1},
		{[]atoll.RenderedItem{webItem("2")}, []string{"api"}, 0},
		{[]atoll.RenderedItem{unreadable}, nil, 0},
		{[]atoll.RenderedItem{hpaItem("")}, nil, 0},
		{[]atoll.RenderedItem{failed}, nil, 0},
	} {
		h := ownership.BundleHolding{Manifest: newManifest("b1", 1, c.items...)}
		e.book.FoldHolding(h)
		var got []string
		for _, key := range e.updateHPATargets(h) {
			if key.Group != "apps" || key.Kind != "Deployment" || key.Namespace != "shop" {
				t.Errorf("due is %s", key)
			}
			got = append(got, key.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) || len(e.scaled) != c.held {
			t.Errorf("due are %q, want %q; targets are %v", got, c.want, e.scaled)
		}
	}
}

// After an act on an autoscaler, the objects of its namespace that left fields are looked at.
func TestLeftFieldsAreLookedAtAfterAnActOnAnAutoscaler(t *testing.T) {
	left, elsewhere := wantedRecord(webItem("2")), wantedRecord(webItem("2"))
	left.Left, elsewhere.Left, elsewhere.Key.Namespace = []string{replicas}, []string{replicas}, "blog"
	waiting := left
	waiting.Key.Name = "waiting"
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{left, elsewhere, waiting, wantedRecord(confItem("x"))})
	later := testNow.Add(time.Hour)
	task := e.holdTask(waiting.Key)
	task.due, task.at, task.failure = true, later, &Failure{}
	e.finishWork(t.Context(), confKey, nil)
	if task.due = false; len(e.listDue()) > 0 {
		t.Error("an act on another kind makes something due")
	}
	task.due = true
	e.finishWork(t.Context(), hpaItem("web").Key, nil)
	if task.at != later {
		t.Error("a key that waits for its next try does not wait")
	}
	if task.due = false; !slices.Equal(e.listDue(), []string{"Deployment/web"}) {
		t.Error("the object that left fields is not due alone")
	}
}

// webWork is the engine's work on a Deployment that is recorded, and leaves fields to the member.
func webWork(record ownership.Record, left ...string) pendingWork {
	item := webItem("2")
	return pendingWork{Step: ownership.Step{Verb: ownership.Apply, Key: item.Key, Owner: "b1", Item: &item, Record: record}, left: left}
}

// A handover that cannot be done fails for its reason. One that other writers disturb is tried again, a bounded number of times.
func TestHandoversThatFail(t *testing.T) {
	changed := &Failure{Reason: atoll.ReasonApplyFailed, Message: "the object changed while its fields were handed over", First: 100 * time.Millisecond}
	conflict := apierrors.NewConflict(configMaps, "web", errors.New("why"))
	for name, c := range map[string]struct {
		uid      string
		path     string
		get, put *apierrors.StatusError
		want     *Failure
		reads    int
		checked  bool
	}{
		"it succeeds":                  {"live", replicas, nil, nil, nil, 1, false},
		"the object went":              {"live", replicas, apierrors.NewNotFound(configMaps, "web"), nil, changed, 1, true},
		"another object has its name":  {"other", replicas, nil, nil, changed, 1, true},
		"the member cannot answer":     {"live", replicas, memberBusy(), nil, busyFailure, 1, false},
		"the member lacks the field":   {"live", "/spec/paused", nil, memberBusy(), nil, 1, false},
		"the field cannot be assigned": {"live", "spec", nil, nil, &Failure{Reason: atoll.ReasonInvalid}, 1, false},
		"the patch is refused":         {"live", replicas, nil, memberBusy(), busyFailure, 1, false},
		"others write all the time":    {"live", replicas, nil, conflict, &Failure{Reason: atoll.ReasonConflict, Waits: true, Message: "the object changes too fast to hand its fields over; tried again"}, 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			api := refuseSome(newMemoryMember(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 7}"), refusals{"GET web": c.get, "PATCH web": c.put})
			e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && path.Base(r.URL.Path) == "web" {
					reads++
				}
				api.ServeHTTP(w, r)
			}), nil)
			record := wantedRecord(webItem("2"))
			record.UID = c.uid
			p := webWork(record)
			res, _ := e.resourceFor(t.Context(), p.Key, "apps/v1")
			f := e.assignFieldsToHandoverManager(t.Context(), p, res, []string{c.path})
			if f != nil && c.want != nil && c.want.Message == "" {
				if !strings.Contains(f.Message, "cannot belong to the member") {
					t.Errorf("it says %s", f.Message)
				}
				c.want.Message = f.Message
			}
			expectFailure(t, f, c.want)
			if reads != c.reads || e.holdTask(p.Key).check != c.checked {
				t.Errorf("%d reads, and the object is checked: %t", reads, e.holdTask(p.Key).check)
			}
		})
	}
}

// Fields that are Atoll's again leave the other manager, which keeps the live values of the rest.
func TestFieldsAreTakenBackFromTheMember(t *testing.T) {
	const apply, hand = "APPLY web " + atoll.FieldManager, "APPLY web " + atoll.HandoverManager
	for name, c := range map[string]struct {
		left   []string // to the member now
		held   bool     // by the other manager
		before []string // left to the member before
		refuse bool
		writes []string
		keeps  any // replicas
		want   *Failure
	}{
		"all are taken back":              {nil, true, []string{replicas}, false, []string{apply, hand}, nil, nil},
		"some are taken back":             {[]string{replicas}, true, []string{replicas, "/spec/paused"}, false, []string{apply, hand}, 7.0, nil},
		"nothing is taken back":           {[]string{replicas}, true, []string{replicas}, false, []string{apply}, nil, nil},
		"the other manager holds nothing": {nil, false, []string{replicas}, false, []string{apply}, nil, nil},
		"the member refuses":              {nil, true, []string{replicas}, true, []string{apply}, nil, busyFailure},
	} {
		t.Run(name, func(t *testing.T) {
			managed := ""
			if c.held {
				managed = ", managedFields: [{manager: " + atoll.HandoverManager + ", operation: Apply, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {}}]"
			}
			api := newMemoryMember(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop"+managed+"}\nspec: {replicas: 7}")
			refused := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.refuse && r.URL.Query().Get("fieldManager") == atoll.HandoverManager {
					refuseSome(api, refusals{"PATCH web": memberBusy()}).ServeHTTP(w, r)
					return
				}
				api.ServeHTTP(w, r)
			})
			record := wantedRecord(webItem("2"))
			record.Left = c.before
			e := newStubEngine(t, refused, []ownership.Record{record})
			p := webWork(record, c.left...)
			res, _ := e.resourceFor(t.Context(), p.Key, "apps/v1")
			f := e.sendApply(t.Context(), p, res, applyParams{uid: "live", force: true, left: p.left})
			expectFailure(t, f, c.want)
			api.expectWrites(t, c.writes...)
			if len(c.writes) == 2 {
				spec, _ := api.bodies[1]["spec"].(map[string]any)
				if got := spec["replicas"]; got != c.keeps {
					t.Errorf("the other manager keeps %v replicas, want %v", got, c.keeps)
				}
			}
		})
	}
}

// The patch of a handover identifies the object and states no field.
func TestThePatchOfAHandoverIdentifiesTheObject(t *testing.T) {
	for _, object := range []string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u","labels":{"a":"b"}},"spec":{"replicas":2}}`,
		`{"apiVersion":"example.io/v1","kind":"Shell","metadata":{"name":"conch","uid":"u"},"spec":{}}`,
	} {
		obj := decodeJSON(t, object)
		got := identityOnly(newUnstructured(obj))
		delete(obj, "spec")
		delete(obj["metadata"].(map[string]any), "labels")
		expectEqualJSON(t, got, obj)
	}
}
