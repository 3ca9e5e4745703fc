package undo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/plan"
)

const confPath = "/api/v1/namespaces/shop/configmaps/conf"

const present = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop","resourceVersion":"30","uid":"u","labels":{"later":"yes"},
	"managedFields":[{"manager":"kubectl","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:data":{}}}]},"data":{"a":"2","b":"2"}}`

const editTarget = `{"change":{"object":"/ConfigMap/shop/conf","resource":"configmaps","revision":"10","operation":"Edited","at":"2026-11-01T08:00:00Z","by":"ann"},
	"object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"a":"1"}},
	"managedFields":[{"manager":"kubectl","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:data":{}}}],"changed":{"data":{"a":null,"b":null}}}`

const list = `{"window":"24h0m0s","changes":[{"object":"/ConfigMap/shop/conf","resource":"configmaps","revision":"10","operation":"Edited",
	"at":"2026-11-01T08:00:00Z","by":"ann","fields":["/data/a"],"moreFields":1,"until":"2026-11-02T08:00:00Z"}]}`

// fakeHub answers the command, and notes what it writes.
type fakeHub struct {
	mu sync.Mutex
	// object that is there; empty: there is none. target of an undo.
	object, target string
	// changed replaces the object before the next write, which then is a conflict; empty: nothing changes it.
	changed string
	writes  []string
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kinds := []metav1.APIResource{{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true, ShortNames: []string{"cm"}}, {Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true}}
	if r.URL.Path != confPath && clienttest.ServeDiscovery(w, r, metav1.APIResourceList{GroupVersion: "v1", APIResources: kinds}) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body) // the command's own request
	q := r.URL.Query()
	switch {
	case r.URL.Path == atoll.UndoPath && q.Get("revision") != "":
		fmt.Fprint(w, h.target)
	case r.URL.Path == atoll.UndoPath:
		fmt.Fprint(w, list)
	case r.URL.Path == atoll.PlanPath:
		fmt.Fprint(w, `{"changes":true,"bundles":[]}`)
	case r.Method == http.MethodGet && h.object == "":
		h.writeRefusal(w, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "conf"))
	case r.Method == http.MethodGet:
		fmt.Fprint(w, h.object)
	case q.Get("dryRun") != "", strings.Contains(string(body), `"dryRun"`): // deletions have it in the body
		fmt.Fprint(w, present)
	case h.changed != "":
		h.object, h.changed = h.changed, ""
		h.writeRefusal(w, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "conf", errors.New("the object has been modified")))
	default:
		h.writes = append(h.writes, r.Method+" "+q.Get("fieldManager")+" "+string(body))
		fmt.Fprint(w, present)
	}
}

func (h *fakeHub) writeRefusal(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // the command reads it
}

func TestTheListOfChanges(t *testing.T) {
	out, err := clienttest.RunForOutput(t, &fakeHub{}, NewCommand)
	if err != nil || !strings.Contains(out, "configmaps/conf") || !strings.Contains(out, "/data/a and 1 more") || !strings.Contains(out, "10") || !strings.Contains(out, "ann") {
		t.Errorf("%v\n%s", err, out)
	}
	for window, want := range map[string]string{"0s": "switched off", "24h0m0s": "of the last 24h", "x": "can be undone"} {
		if got := emptyListText(window, "shop"); !strings.Contains(got, want) {
			t.Errorf("%s: %q", window, got)
		}
	}
}

func TestAnEditIsTakenBack(t *testing.T) {
	hub := &fakeHub{object: present, target: editTarget}
	out, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "-n", "shop")
	if !errors.Is(err, plan.ErrChanges) || len(hub.writes) != 0 {
		t.Fatalf("without a confirmation: %v, writes %q", err, hub.writes)
	}
	for _, want := range []string{`/data/a: "2" -> "1"`, `/data/b: "2" -> (none)`, "would be changed", "by ann", "--yes does it"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "later") {
		t.Errorf("a label that came later is touched:\n%s", out)
	}
	out, err = clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "-n", "shop", "--yes")
	want := []string{`PATCH kubectl {"data":{"a":"1","b":null},"metadata":{"resourceVersion":"30"}}`}
	if err != nil || !slices.Equal(hub.writes, want) || !strings.Contains(out, "cm/conf is as it was") {
		t.Errorf("%v, writes %q\n%s", err, hub.writes, out)
	}
}

func TestAnObjectThatChangedSinceThePlan(t *testing.T) {
	hub := &fakeHub{object: present, target: editTarget, changed: strings.Replace(present, `"later":"yes"`, `"later":"no"`, 1)}
	if _, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "--yes"); err == nil || !strings.Contains(err.Error(), "--force") || len(hub.writes) != 0 {
		t.Errorf("%v, writes %q", err, hub.writes)
	}
	if _, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "--yes", "--force"); err != nil || !slices.Equal(hub.writes, []string{`PATCH kubectl {"data":{"a":"1","b":null}}`}) {
		t.Errorf("with --force: %v, writes %q", err, hub.writes)
	}
}

// The hub writes statuses at any time. They are no change that a person must look at.
func TestAStatusWrittenSinceThePlan(t *testing.T) {
	newer := strings.Replace(strings.Replace(present, `"resourceVersion":"30"`, `"resourceVersion":"31"`, 1), `{"apiVersion"`, `{"status":{"ready":1},"apiVersion"`, 1)
	hub := &fakeHub{object: present, target: editTarget, changed: newer}
	out, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "--yes")
	want := []string{`PATCH kubectl {"data":{"a":"1","b":null},"metadata":{"resourceVersion":"31"}}`}
	if err != nil || !slices.Equal(hub.writes, want) || !strings.Contains(out, "cm/conf is as it was") {
		t.Errorf("%v, writes %q\n%s", err, hub.writes, out)
	}
}

func TestADeletedObjectComesBack(t *testing.T) {
	hub := &fakeHub{target: strings.Replace(editTarget, "Edited", "Deleted", 1)}
	out, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "--yes")
	if err != nil || len(hub.writes) != 2 || !strings.HasPrefix(hub.writes[0], "POST kubectl {") || !strings.Contains(out, "is created again") {
		t.Fatalf("%v, writes %q\n%s", err, hub.writes, out)
	}
	if owners := hub.writes[1]; !strings.HasPrefix(owners, "PATCH atoll-cli ") || !strings.Contains(owners, `"manager":"kubectl"`) || !strings.Contains(owners, `"resourceVersion":"30"`) {
		t.Errorf("the owners are written as %s", owners)
	}
}

func TestACreationIsTakenBack(t *testing.T) {
	target := `{"change":{"object":"/ConfigMap/shop/conf","revision":"10","operation":"Created","at":"2026-11-01T08:00:00Z","by":"ann"},"absent":true,"whole":true}`
	hub := &fakeHub{object: present, target: target}
	out, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "--yes")
	if err != nil || len(hub.writes) != 1 || !strings.HasPrefix(hub.writes[0], "DELETE ") || !strings.Contains(hub.writes[0], `"preconditions":{"uid":"u","resourceVersion":"30"}`) || !strings.Contains(out, "is deleted again") {
		t.Errorf("%v, writes %q\n%s", err, hub.writes, out)
	}
	hub = &fakeHub{target: target}
	if out, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf", "--yes"); err != nil || len(hub.writes) != 0 || !strings.Contains(out, "is already as before") {
		t.Errorf("an object that is gone: %v, writes %q\n%s", err, hub.writes, out)
	}
}

func TestValuesOfSecretsAreNotShown(t *testing.T) {
	secret := strings.NewReplacer(`"ConfigMap"`, `"Secret"`, `"a":"2"`, `"a":"aGlkZGVu"`).Replace(present)
	hub := &fakeHub{object: secret, target: strings.ReplaceAll(editTarget, `"ConfigMap"`, `"Secret"`)}
	out, err := clienttest.RunForOutput(t, hub, NewCommand, "secret/conf")
	if !errors.Is(err, plan.ErrChanges) || !strings.Contains(out, "/data/a: (not shown)") || strings.Contains(out, "aGlkZGVu") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Names of users and fields come from others, and reach the terminal without control characters.
func TestNamesAreEscaped(t *testing.T) {
	hostile := strings.NewReplacer(`"by":"ann"`, `"by":"ann\u001b[2J"`, `"b":null`, `"b\u001b[8m\n":null`)
	hub := &fakeHub{object: strings.Replace(present, `"b":"2"`, `"b\u001b[8m\n":"2"`, 1), target: hostile.Replace(editTarget)}
	out, err := clienttest.RunForOutput(t, hub, NewCommand, "cm/conf")
	if !errors.Is(err, plan.ErrChanges) || strings.Contains(out, "\x1b") || !strings.Contains(out, `ann\x1b[2J`) || !strings.Contains(out, `/data/b\x1b[8m\x0a: "2" -> (none)`) {
		t.Errorf("%v\n%q", err, out)
	}
}

func TestTimesOfAnUndo(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{"30m": "2026-11-01T11:30:00Z", "2026-11-01T08:00:00Z": "2026-11-01T08:00:00Z", "-1h": "", "noon": ""} {
		got, err := parseTime(text, now)
		if (err != nil) != (want == "") || err == nil && got.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for args, want := range map[string]string{"cm/conf --to 1s": "nothing to undo", "--revision 10": "of one object", "cm/conf --to 1s --revision 10": "none of the others"} {
		if _, err := clienttest.RunForOutput(t, &fakeHub{object: present, target: editTarget}, NewCommand, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A change of a former object of the same name, whose deletion is not kept, is not taken back in the new one.
func TestAFormerObjectOfTheName(t *testing.T) {
	for name, test := range map[string]struct {
		target  string
		args    []string
		refused bool
	}{
		"the same object":        {target: strings.Replace(editTarget, `"revision"`, `"uid":"u","revision"`, 1)},
		"a former object":        {target: strings.Replace(editTarget, `"revision"`, `"uid":"former","revision"`, 1), refused: true},
		"a former one, by force": {target: strings.Replace(editTarget, `"revision"`, `"uid":"former","revision"`, 1), args: []string{"--force"}},
		"with its deletion":      {target: strings.Replace(editTarget, `"change":{`, `"whole":true,"change":{"uid":"former",`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			hub := &fakeHub{object: present, target: test.target}
			out, err := clienttest.RunForOutput(t, hub, NewCommand, append([]string{"cm/conf", "-n", "shop", "--yes"}, test.args...)...)
			if refused := err != nil && strings.Contains(err.Error(), "another object of the same name"); refused != test.refused || (len(hub.writes) == 0) != test.refused {
				t.Errorf("%v, writes %q\n%s", err, hub.writes, out)
			}
		})
	}
}
