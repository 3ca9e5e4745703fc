package apply

import (
	"net/http"
	"path"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A refused edit asks whether a new object with the content would be accepted, under a name of its own.
func TestARefusedEditIsAskedAsANewObject(t *testing.T) {
	item := confItem("x")
	item.Recreate = true
	invalid := apierrors.NewInvalid(configMapKind, "conf", nil)
	mine := applyParams{uid: "live"}
	for name, c := range map[string]struct {
		item atoll.RenderedItem
		err  error
		s    applyParams
		want bool
	}{
		"it states recreation":           {item, invalid, mine, true},
		"it does not":                    {confItem("x"), invalid, mine, false},
		"another error":                  {item, memberBusy(), mine, false},
		"another object has its name":    {item, withCauses(apierrors.NewInvalid(configMapKind, "conf", nil), [2]string{"x", "metadata.uid"}), mine, false},
		"it is adopted now":              {item, invalid, applyParams{uid: "live", adopt: true}, false},
		"it is created":                  {item, invalid, applyParams{}, false},
		"an object that is not recorded": {item, invalid, applyParams{uid: "other"}, false},
	} {
		p := pendingWork{Step: ownership.Step{Key: confKey, Owner: "b1", Item: &c.item, Record: wantedRecord(c.item)}}
		if got := mayRecreateAfterRefusal(c.err, p, c.s); got != c.want {
			t.Errorf("%s: it may be created again: %t", name, got)
		}
	}
	if mayRecreateAfterRefusal(invalid, pendingWork{Step: ownership.Step{Item: &item}}, applyParams{}) {
		t.Error("an object without a UID may be created again")
	}
	var asked []string
	api := newMemoryMember(t)
	e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			asked = append(asked, path.Base(r.URL.Path)+" "+r.URL.Query().Get("dryRun"))
		}
		api.ServeHTTP(w, r)
	}), nil)
	p := pendingWork{Step: ownership.Step{Key: confKey, Owner: "b1", Item: &item, Record: wantedRecord(item)}}
	p.Key.Name = strings.Repeat("n", 253)
	res, _ := e.resourceFor(t.Context(), confKey, "v1")
	expectFailure(t, e.scheduleRecreation(t.Context(), p, res, invalid), nil)
	if task := e.holdTask(p.Key); task.recreate != "hx" || !task.due {
		t.Errorf("the task is %+v", task)
	}
	if len(asked) != 1 || len(asked[0]) != 249+len(" All") || !strings.HasPrefix(asked[0], strings.Repeat("n", 240)+"-") {
		t.Errorf("it asked for %q", asked)
	}
	p.Item = &atoll.RenderedItem{Object: []byte("{")}
	if f := e.scheduleRecreation(t.Context(), p, res, invalid); reasonOf(f) != atoll.ReasonInvalid || !strings.Contains(f.Message, "no JSON object") {
		t.Errorf("a broken item fails with %+v", f)
	}
}

// An adopted object, or one with data, is not created again.
func TestWhatIsNotCreatedAgain(t *testing.T) {
	invalid := apierrors.NewInvalid(configMapKind, "conf", nil)
	item := confItem("x")
	claim := atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
	for name, c := range map[string]struct {
		key     atoll.ItemKey
		adopted bool
		refused refusals
		want    *Failure
	}{
		"it was adopted":       {confKey, true, nil, &Failure{Reason: atoll.ReasonInvalid, Message: "it was not made by Atoll, and is not created again: " + invalid.Error()}},
		"it has data":          {claim, false, nil, &Failure{Reason: atoll.ReasonInvalid, Message: "its deletion would take along more than the object, so that it is not created again: " + invalid.Error()}},
		"it would be refused":  {confKey, false, refusals{"": invalid}, &Failure{Reason: atoll.ReasonInvalid, Message: invalid.Error()}},
		"the member is silent": {confKey, false, refusals{"": memberBusy()}, busyFailure},
	} {
		t.Run(name, func(t *testing.T) {
			member := newMemoryMember(t)
			e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := c.refused[""]; err != nil && r.Method == http.MethodPatch {
					refuseSome(member, refusals{"DRYRUN " + path.Base(r.URL.Path): err}).ServeHTTP(w, r)
					return
				}
				member.ServeHTTP(w, r)
			}), nil)
			record := wantedRecord(item)
			record.Adopted = c.adopted
			p := pendingWork{Step: ownership.Step{Key: c.key, Owner: "b1", Item: &item, Record: record}}
			res, _ := e.resourceFor(t.Context(), c.key, "v1")
			expectFailure(t, e.scheduleRecreation(t.Context(), p, res, invalid), c.want)
			if task := e.holdTask(c.key); task.recreate != "" || task.due {
				t.Errorf("the task is %+v", task)
			}
		})
	}
}
