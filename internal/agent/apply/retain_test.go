package apply

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

var shellKey = atoll.ItemKey{Group: "example.io", Kind: "Shell", Name: "conch"}

// shellItem returns an item of the kind Shell with its spec.
func shellItem(spec string) atoll.RenderedItem {
	return atoll.RenderedItem{
		Key: shellKey, APIVersion: "example.io/v1", UID: "t", Hash: "h" + spec,
		Object: []byte(`{"apiVersion":"example.io/v1","kind":"Shell","metadata":{"name":"conch"},"spec":` + spec + `}`),
	}
}

// newRetainers returns interpreters that keep fields of Shells by a CEL expression.
func newRetainers(cel string) []atoll.Interpreter {
	i := &v1alpha1.ResourceInterpreter{Spec: v1alpha1.ResourceInterpreterSpec{
		Target: v1alpha1.InterpreterTarget{Group: "example.io", Kinds: []string{"Shell"}}, Retain: &v1alpha1.InterpreterRule{CEL: cel},
	}}
	i.Name = "i"
	gvk := schema.GroupVersionKind{Group: "example.io", Version: "v1", Kind: "Shell"}
	return script.InterpretersForMember(script.NewLibrary([]*v1alpha1.ResourceInterpreter{i}).InterpretersForContent([]schema.GroupVersionKind{gvk}))
}

// A field that a script reports as the member's is sent with its live value, for the version of the object that was read.
func TestFieldsThatAScriptRetainsAreSentWithTheirLiveValues(t *testing.T) {
	const retain = `{'spec': {'seed': observed.spec.seed}}`
	conflict := apierrors.NewConflict(configMaps, "conch", errors.New("why"))
	for name, c := range map[string]struct {
		cel     string
		object  string
		refused refusals
		sent    string // spec
		version any
		want    *Failure
		checked bool
	}{
		"a field is retained":        {cel: retain, sent: `{"seed":"live","size":1}`, version: "1"},
		"no script retains fields":   {sent: `{"seed":"hub","size":1}`},
		"the object is not readable": {cel: retain, refused: refusals{"GET conch": memberBusy()}, want: busyFailure},
		"no script, not readable":    {refused: refusals{"GET conch": memberBusy()}, sent: `{"seed":"hub","size":1}`},
		"the item is no object":      {cel: retain, object: "{", want: &Failure{Reason: atoll.ReasonInvalid, Message: "unexpected"}},
		"the script fails":           {cel: `{'spec': {'seed': observed.spec.absent}}`, want: &Failure{Reason: atoll.ReasonInterpreterFailed, Message: "absent"}},
		"the object changed":         {cel: retain, refused: refusals{"PATCH conch": conflict}, want: &Failure{Reason: atoll.ReasonApplyFailed, First: 100 * time.Millisecond, Message: "the object changed while what the member has set of it was read"}, checked: true},
		"it changed, and no script":  {refused: refusals{"PATCH conch": conflict}, want: &Failure{Reason: atoll.ReasonConflict, Message: "conch"}, checked: true},
		"the apply fails":            {cel: retain, refused: refusals{"PATCH conch": memberBusy()}, want: busyFailure},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, "apiVersion: example.io/v1\nkind: Shell\nmetadata: {name: conch}\nspec: {seed: live, size: 3}")
			item := shellItem(`{"seed":"hub","size":1}`)
			if c.object != "" {
				item.Object = []byte(c.object)
			}
			m := newManifest("b1", 2, item)
			if c.cel != "" {
				m.Interpreters = newRetainers(c.cel)
			}
			record := wantedRecord(item)
			record.Applied = "before"
			e := newStubEngine(t, refuseSome(api, c.refused), []ownership.Record{record}, m)
			f := e.workOnKey(t.Context(), shellKey)
			if f != nil && c.want != nil && strings.Contains(f.Message, c.want.Message) {
				c.want.Message = f.Message
			}
			expectFailure(t, f, c.want)
			if e.holdTask(shellKey).check != c.checked {
				t.Errorf("it is checked: %t", e.holdTask(shellKey).check)
			}
			if c.sent != "" && len(api.bodies) == 1 {
				expectEqualJSON(t, api.bodies[0]["spec"], parseJSON(t, c.sent))
				if got := api.bodies[0]["metadata"].(map[string]any)["resourceVersion"]; got != c.version {
					t.Errorf("it is sent for version %v, want %v", got, c.version)
				}
			} else if c.sent != "" || len(api.bodies) > 0 {
				t.Errorf("sent are %v", api.bodies)
			}
		})
	}
}

// An object is judged again when other interpreters come. A kind of which metadata were enough is then watched whole.
func TestObjectsAreJudgedAgainByOtherInterpreters(t *testing.T) {
	shells := v1alpha1.InterpreterTarget{Group: "example.io", Kinds: []string{"Shell"}}
	maps := v1alpha1.InterpreterTarget{Kinds: []string{"ConfigMap"}}
	unmade := wantedRecord(confItem("x"))
	unmade.UID = ""
	for name, c := range map[string]struct {
		record      ownership.Record
		before, now []atoll.Interpreter
		judged      bool
		whole       int
	}{
		"new ones":             {wantedRecord(confItem("x")), nil, newInterpreters(maps, "so"), true, 1},
		"other ones":           {wantedRecord(confItem("x")), newInterpreters(maps, "so"), newInterpreters(maps, "other"), true, 1},
		"none any more":        {wantedRecord(confItem("x")), newInterpreters(maps, "so"), nil, true, 0},
		"the same ones":        {wantedRecord(confItem("x")), newInterpreters(maps, "so"), newInterpreters(maps, "so"), false, 0},
		"ones of another kind": {wantedRecord(confItem("x")), nil, newInterpreters(shells, "so"), false, 0},
		"an object to be made": {unmade, nil, newInterpreters(maps, "so"), false, 1},
		"a kind with a status": {wantedRecord(shellItem("{}")), nil, newInterpreters(shells, "so"), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManifest("b1", 1)
			m.Interpreters = c.before
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{c.record}, m)
			e.observed[c.record.Key] = &observation{}
			prev, now := ownership.BundleHolding{Manifest: m}, ownership.BundleHolding{Manifest: m}
			now.Manifest.Interpreters = c.now
			e.setInterpreters("b1", c.now)
			e.mu.Lock()
			whole := e.rejudgeOnInterpreterChange(&prev, &now)
			task := e.ensureTask(c.record.Key)
			e.mu.Unlock()
			if task.judge != c.judged || len(whole) != c.whole {
				t.Errorf("judged again: %t, watched whole: %v", task.judge, whole)
			}
			if stale := e.observed[c.record.Key].stale; stale != (c.judged || c.whole > 0) || task.due != stale {
				t.Errorf("an observation is stale: %t, due: %t", stale, task.due)
			}
		})
	}
}
