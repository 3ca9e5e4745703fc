package apply

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// The record of an object comes back from its labels, where Atoll applied the object.
func TestTheRecordOfALabelledObject(t *testing.T) {
	full := observe.View{Key: confKey, UID: "u", Label: "b1", Template: "t", Owned: "o", Adopted: true}
	with := func(edit func(*observe.View)) observe.View { v := full; edit(&v); return v }
	claims := map[string]ownership.Claim{"b1": {State: ownership.Kept, Template: "t"}}
	pod := atoll.ItemKey{Kind: "Pod", Namespace: "shop", Name: "once"}
	for name, c := range map[string]struct {
		view observe.View
		want *ownership.Record
	}{
		"an object":               {full, &ownership.Record{Key: confKey, UID: "u", Label: "b1", Owner: "b1", Template: "t", Adopted: true, Claims: claims}},
		"one that runs once":      {with(func(v *observe.View) { v.Key = pod }), &ownership.Record{Key: pod, UID: "u", Label: "b1", Owner: "b1", Template: "t", Adopted: true, Ran: "t", Claims: claims}},
		"a namespace of a Bundle": {with(func(v *observe.View) { v.Key = shopNamespace.Key }), &ownership.Record{Key: shopNamespace.Key, UID: "u", Label: "b1", Owner: "b1", Template: "t", Adopted: true, Claims: claims}},
		"a namespace of its own":  {with(func(v *observe.View) { v.Key, v.Template = shopNamespace.Key, implicitTemplate }), &ownership.Record{Key: shopNamespace.Key, UID: "u", Label: "b1", Implicit: true}},
		"another's fields":        {with(func(v *observe.View) { v.Owned = "" }), nil},
		"without a Bundle":        {with(func(v *observe.View) { v.Label = "" }), nil},
		"without a template":      {with(func(v *observe.View) { v.Template = "" }), nil},
		"controlled by another":   {with(func(v *observe.View) { v.Controlled = true }), nil},
		"an object of that name":  {with(func(v *observe.View) { v.Template = implicitTemplate }), &ownership.Record{Key: confKey, UID: "u", Label: "b1", Owner: "b1", Template: implicitTemplate, Adopted: true, Claims: map[string]ownership.Claim{"b1": {State: ownership.Kept, Template: implicitTemplate}}}},
	} {
		res := member.Resource{Kind: "ConfigMap"}
		res.Version = "v1"
		got, ours := recordOf(c.view, res)
		if ours != (c.want != nil) {
			t.Errorf("%s: it is Atoll's: %t", name, ours)
		}
		if c.want == nil {
			continue
		}
		if c.want.APIVersion = "v1"; !reflect.DeepEqual(got, *c.want) {
			t.Errorf("%s: the record is\n%+v, want\n%+v", name, got, *c.want)
		}
	}
}

// Records may be missing where nothing is recorded, or where a stored item has no record.
func TestRecordsThatMayBeMissing(t *testing.T) {
	with, empty := storedItems(), storedItems()
	empty.Bundles = nil
	for name, c := range map[string]struct {
		bundles int
		known   map[atoll.ItemKey]bool
		want    bool
	}{
		"all are known": {1, map[atoll.ItemKey]bool{confKey: true}, false}, "none is known": {1, map[atoll.ItemKey]bool{}, true},
		"one is missing": {1, map[atoll.ItemKey]bool{shopNamespace.Key: true}, true}, "nothing at all": {0, map[atoll.ItemKey]bool{}, true},
		"no Bundle is stored": {0, map[atoll.ItemKey]bool{confKey: true}, false},
	} {
		stored := with
		if c.bundles == 0 {
			stored = empty
		}
		if got := hasLostRecords(&stored, c.known); got != c.want {
			t.Errorf("%s: some may be missing: %t", name, got)
		}
	}
}

// A claim is the set's where its controller stated what the claim asks for. Statements of its status do not count.
func TestTheControllerOfAVolumeClaim(t *testing.T) {
	asks := func(manager, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:accessModes":{}}}`)}
	}
	set := newUnstructured(decodeJSON(t, `{"metadata":{"name":"db","managedFields":[{"manager":"controllers","subresource":"status"},{"manager":"kubectl"}]},
		"spec":{"selector":{"matchLabels":{"app":"db"}},"volumeClaimTemplates":["odd",{"metadata":{"name":"data"}}]}}`))
	of := newVolumeClaimMatcher(set)
	if of.controller != "controllers" || len(of.prefixes) != 1 || of.prefixes[0] != "data-db-" {
		t.Errorf("the set is %+v", of)
	}
	for name, c := range map[string]struct {
		managers []metav1.ManagedFieldsEntry
		want     bool
	}{
		"the controller":                 {[]metav1.ManagedFieldsEntry{asks("controllers", "")}, true},
		"another":                        {[]metav1.ManagedFieldsEntry{asks("kubectl", ""), asks("controllers", "")}, false},
		"another states the status":      {[]metav1.ManagedFieldsEntry{asks("kubelet", "status"), asks("controllers", "")}, true},
		"another states nothing":         {[]metav1.ManagedFieldsEntry{{Manager: "kubectl"}, asks("controllers", "")}, true},
		"the controller on status alone": {[]metav1.ManagedFieldsEntry{asks("controllers", "status")}, false},
		"no manager is known":            {nil, false},
	} {
		claim := &metav1.PartialObjectMetadata{}
		claim.Name, claim.Labels, claim.ManagedFields = "data-db-0", map[string]string{"app": "db"}, c.managers
		if got := of.matchesClaim(claim); got != c.want {
			t.Errorf("%s: it is the set's: %t", name, got)
		}
	}
	for name, want := range map[string]bool{"data-db-0": true, "data-db-12": true, "data-db-": false, "data-db-1x": false, "log-db-0": false} {
		if got := of.matchesName(name); got != want {
			t.Errorf("%s is of the set: %t", name, got)
		}
	}
}

// An element is found by the parts of its key that the item states. One that states no part is found by none.
func TestTheKeyOfAnElement(t *testing.T) {
	key := map[string]any{"port": int64(80), "protocol": "TCP"}
	for name, c := range map[string]struct {
		element map[string]any
		want    bool
	}{
		"all parts":   {map[string]any{"port": int64(80), "protocol": "TCP"}, true},
		"one part":    {map[string]any{"port": int64(80)}, true},
		"a wrong one": {map[string]any{"port": int64(80), "protocol": "UDP"}, false},
		"no part":     {map[string]any{"name": "web"}, false},
	} {
		if got := couldHaveKey(c.element, key); got != c.want {
			t.Errorf("%s: it could be the element: %t", name, got)
		}
	}
	if _, _, ok := mergeKey("text", map[string]any{`k:{"port":80}`: nil}); ok {
		t.Error("a text has a key")
	}
	if !hasKey(map[string]any{"port": int64(80), "protocol": "TCP", "name": "x"}, key) || hasKey(map[string]any{"port": int64(80)}, key) || hasKey("text", key) || hasKey("text", nil) {
		t.Error("an element has a key that is not its own")
	}
}

// A creation and an apply of new content are logged. An apply that changes nothing is not.
func TestAppliesOfNewContentAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		record ownership.Record
		live   []string
		want   string
	}{
		"created":      {unmadeRecord(confItem("x")), nil, "msg=created"},
		"new content":  {wantedRecord(confItem("y")), []string{liveConf("y")}, "msg=applied"},
		"same content": {wantedRecord(confItem("x")), []string{liveConf("y")}, ""},
	} {
		e := newStubEngine(t, newMemoryMember(t, c.live...), []ownership.Record{shopNamespace, c.record}, newManifest("b1", 1, confItem("x")))
		var log bytes.Buffer
		e.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		if name == "same content" {
			e.holdTask(confKey).correct = true
		}
		if f := settleKey(t, e.MemberApplier, confKey); f != nil {
			t.Errorf("%s: %+v", name, f)
		}
		for _, line := range []string{"msg=created", "msg=applied"} {
			if got := strings.Contains(log.String(), line); got != (line == c.want) {
				t.Errorf("%s: %s is logged: %t", name, line, got)
			}
		}
	}
}
