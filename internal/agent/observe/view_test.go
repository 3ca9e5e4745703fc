package observe

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: u1
  resourceVersion: "7"
  generation: 1
  labels: {atoll.dev/bundle-uid: b1}
  managedFields:
  - {manager: atoll, operation: Apply, fieldsV1: {"f:spec": {"f:replicas": {}, "f:paused": {}}}}
  - {manager: kubectl, operation: Update, fieldsV1: {}}
  - {manager: kube-controller-manager, operation: Update, subresource: status, fieldsV1: {}}
  - {manager: hpa, operation: Update, subresource: scale, fieldsV1: {}}
spec: {replicas: 1}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}
`

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// A View has what Atoll must know of an object, and the managers that hold other fields.
func TestAViewIdentifiesAnObject(t *testing.T) {
	o := parse(t, deployment)
	v := ViewOf(o, Judges{})
	if want := (atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}); v.Key != want || v.UID != "u1" || v.Version != "7" || v.Label != o.GetLabels()[atoll.LabelBundleUID] {
		t.Errorf("it is %+v", v)
	}
	if v.Health != atoll.Healthy || v.Finished || v.Deleting || v.Adopted || v.Controlled {
		t.Errorf("its state is %+v", v)
	}
	if !slices.Equal(v.Others, []string{"kubectl", "hpa"}) {
		t.Errorf("other managers are %q", v.Others)
	}
	if string(v.Fields) != `{"f:spec":{"f:paused":{},"f:replicas":{}}}` || v.Owned == "" {
		t.Errorf("its fields are %s, %q", v.Fields, v.Owned)
	}
	o.SetGeneration(2)
	if got := ViewOf(o, Judges{}); got.Health == atoll.Healthy {
		t.Errorf("before its controller has seen it, it is %s", got.Health)
	}
}

// The hash of Atoll's fields depends on them alone, not on their order.
func TestTheHashFollowsAtollsFields(t *testing.T) {
	owned := func(fields string) string {
		o := parse(t, deployment)
		managed := o.GetManagedFields()
		managed[0].FieldsV1 = metav1.NewFieldsV1(fields)
		o.SetManagedFields(managed)
		return ViewOf(o, Judges{}).Owned
	}
	same := owned(`{"f:spec":{"f:replicas":{},"f:paused":{}}}`)
	if other := owned(`{"f:spec":{"f:paused":{},"f:replicas":{}}}`); other != same {
		t.Error("another order is another hash")
	}
	if other := owned(`{"f:spec":{"f:paused":{}}}`); other == same {
		t.Error("a field that was taken gives the same hash")
	}
}

// An object without a status is healthy as long as it exists.
func TestExistenceIsHealth(t *testing.T) {
	now := metav1.Now()
	controller := true
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if v := ViewByExistence(m, "", "ConfigMap"); v.Health != atoll.Healthy || v.Key.Kind != "ConfigMap" {
		t.Errorf("it is %+v", v)
	}
	m.DeletionTimestamp, m.Finalizers = &now, []string{"x"}
	m.OwnerReferences = []metav1.OwnerReference{{Name: "owner", Controller: &controller}}
	if v := ViewByExistence(m, "", "ConfigMap"); v.Health != atoll.Progressing || v.Reason != atoll.ReasonTerminating || !v.Deleting || !v.Controlled || !slices.Equal(v.Finalizers, []string{"x"}) {
		t.Errorf("while it is deleted: %+v", v)
	}
	for kind, want := range map[string]bool{"ConfigMap": true, "Pod": false} {
		if NeedsOnlyMetadata("", kind) != want {
			t.Errorf("metadata alone is read of a %s: %t", kind, !want)
		}
	}
}

// A Job that has finished keeps its result while it is being deleted.
func TestAFinishedJobKeepsItsResult(t *testing.T) {
	o := parse(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: shop}, spec: {completions: 1}, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`)
	before := ViewOf(o, Judges{})
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	after := ViewOf(o, Judges{})
	if !before.Finished || before.Health != atoll.Healthy || !after.Finished || !after.Deleting || after.Health != atoll.Healthy {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
	if o.GetDeletionTimestamp() == nil {
		t.Error("the object is changed")
	}
}

func TestLostFieldsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		limit         int
		want          []string
	}{
		"none":               {`{"f:spec":{"f:a":{}}}`, `{"f:spec":{"f:a":{}}}`, 5, nil},
		"one":                {`{"f:spec":{"f:a":{},"f:b":{}}}`, `{"f:spec":{"f:a":{}}}`, 5, []string{"spec.b"}},
		"all":                {`{"f:spec":{"f:b":{},"f:a":{}}}`, ``, 5, []string{"spec.a", "spec.b"}},
		"at most the limit":  {`{"f:spec":{"f:b":{},"f:a":{}}}`, `{}`, 1, []string{"spec.a"}},
		"of an item":         {`{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}}}}`, `{"f:ports":{}}`, 5, []string{`ports[k:{"port":80}].name`}},
		"what came is not":   {`{}`, `{"f:spec":{"f:a":{}}}`, 5, nil},
		"of what is no JSON": {`x`, `{}`, 5, nil},
	} {
		if got := LostFields(json.RawMessage(c.before), json.RawMessage(c.after), c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// recordingSink records what it receives.
type recordingSink struct {
	seen, left []string
	listed     map[atoll.ItemKey]bool
	// observed are the names of observed objects.
	observed       map[string]bool
	observedListed map[atoll.ItemKey]bool
}

func (s *recordingSink) ObjectSeen(v View) { s.seen = append(s.seen, v.Key.Name) }
func (s *recordingSink) ObjectLeft(v View) { s.left = append(s.left, v.Key.Name) }
func (s *recordingSink) ReconcileListed(_, _ string, found map[atoll.ItemKey]bool) {
	s.listed = found
}
func (s *recordingSink) ObserverOf(key atoll.ItemKey) string {
	if s.observed[key.Name] {
		return "b1"
	}
	return ""
}
func (s *recordingSink) ObservedListed(_, _ string, found map[atoll.ItemKey]bool) {
	s.observedListed = found
}
func (s *recordingSink) JudgesOf(string, atoll.ItemKey) Judges { return Judges{} }
func (s *recordingSink) IsInterpreted(string, string) bool     { return false }

// A watch of all objects passes on those that are observed, with what changes by edits.
func TestTheReducerOfAllObjectsPassesObservedOnesOn(t *testing.T) {
	sink := &recordingSink{observed: map[string]bool{"mine": true}}
	r := &viewForwarder{resource: member.Resource{Kind: "ConfigMap"}, sink: sink, observers: sink, unlabelled: true}
	named := func(name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	transformed, err := r.Transformer()(named("others"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		r.Replace([]any{transformed, named("mine")}, "1"), r.Add(named("others")), r.Update(named("mine")), r.Delete(named("others")), r.Delete(named("mine")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(sink.seen, []string{"mine", "mine"}) || !slices.Equal(sink.left, []string{"mine"}) || len(sink.observedListed) != 1 || sink.listed != nil {
		t.Errorf("seen %q, left %q, listed %v and %v", sink.seen, sink.left, sink.observedListed, sink.listed)
	}
}

// A status is no edit. Objects without a generation change with each version.
func TestTheEditOfAnObject(t *testing.T) {
	at := func(generation int64, version string, change func(*metav1.ObjectMeta)) string {
		m := &metav1.ObjectMeta{Generation: generation, ResourceVersion: version, Labels: map[string]string{"a": "b"}}
		change(m)
		return EditFingerprintOfMetadata(m)
	}
	none := func(*metav1.ObjectMeta) {}
	if at(1, "5", none) != at(1, "6", none) {
		t.Error("a status is an edit")
	}
	if at(0, "5", none) == at(0, "6", none) {
		t.Error("a version of an object without a generation is no edit")
	}
	seen := map[string]bool{at(1, "5", none): true, at(2, "5", none): true}
	for _, change := range []func(*metav1.ObjectMeta){
		func(m *metav1.ObjectMeta) { m.Labels = nil },
		func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a": "b"} },
		func(m *metav1.ObjectMeta) { m.Finalizers = []string{"a/b"} },
		func(m *metav1.ObjectMeta) { m.OwnerReferences = []metav1.OwnerReference{{Name: "a"}} },
		func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
	} {
		seen[at(1, "5", change)] = true
	}
	if len(seen) != 7 {
		t.Errorf("%d edits differ, want 7", len(seen))
	}
}

// The status of a kind without generations is no edit, where the whole object is watched.
func TestTheEditOfAnObjectWithoutAGeneration(t *testing.T) {
	edit := func(text string) string {
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &obj.Object); err != nil {
			t.Fatal(err)
		}
		return EditFingerprintOf(obj)
	}
	first := edit(`{"metadata":{"name":"a","resourceVersion":"1","managedFields":[{"manager":"a"}]},"spec":{"a":1},"status":{"b":1}}`)
	if first != edit(`{"metadata":{"name":"a","resourceVersion":"2","managedFields":[{"manager":"b"}]},"spec":{"a":1},"status":{"b":2}}`) {
		t.Error("a status is an edit")
	}
	for _, text := range []string{`{"metadata":{"name":"a"},"spec":{"a":2}}`, `{"metadata":{"name":"a","labels":{"a":"b"}},"spec":{"a":1}}`} {
		if first == edit(text) {
			t.Errorf("%s is no edit", text)
		}
	}
}

// Every event reaches the sink as a View; what a list finds is named as a whole.
func TestTheReducerPassesEventsOn(t *testing.T) {
	sink := &recordingSink{}
	r := &viewForwarder{resource: member.Resource{Kind: "ConfigMap"}, sink: sink}
	named := func(name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	transformed, err := r.Transformer()(named("listed"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		r.Replace([]any{transformed, named("other")}, "1"), r.Add(named("new")), r.Update(named("new")),
		r.Delete(named("new")), r.Delete(cache.DeletedFinalStateUnknown{Obj: named("missed")}), r.Resync(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if want := []string{"listed", "other", "new", "new"}; !slices.Equal(sink.seen, want) {
		t.Errorf("seen: %q, want %q", sink.seen, want)
	}
	if want := []string{"new", "missed"}; !slices.Equal(sink.left, want) {
		t.Errorf("left: %q, want %q", sink.left, want)
	}
	if len(sink.listed) != 2 || !sink.listed[atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "listed"}] {
		t.Errorf("listed: %v", sink.listed)
	}
	if err := r.Add("text"); err == nil {
		t.Error("a text is an object")
	}
}

// Rules of the policy decide health, completion and feedback. A Secret has none.
func TestAViewByRules(t *testing.T) {
	rules := assess.CompileRules(&atoll.Assessment{
		Feedback: []v1alpha1.FeedbackRule{{Name: "colour", JSONPath: ".data.colour", Type: v1alpha1.FeedbackString}},
		Health:   []v1alpha1.HealthRule{{Expression: "object.data.colour == 'green'"}}, Completion: "'done' in object.data",
	})
	for kind, judged := range map[string]bool{"ConfigMap": true, "Secret": false} {
		o := parse(t, `{apiVersion: v1, kind: `+kind+`, metadata: {name: c, namespace: shop}, data: {colour: red}}`)
		v := ViewOf(o, Judges{Rules: rules})
		if (v.Health == atoll.Progressing && v.Reason == atoll.ReasonHealthRuleUnmet) != judged || (len(v.Feedback) == 1 && v.Feedback[0].Value == "red") != judged || (v.RulesID != "") != judged {
			t.Errorf("%s: %+v", kind, v)
		}
		o.Object["data"] = map[string]any{"colour": "green", "done": "yes"}
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		if v := ViewOf(o, Judges{Rules: rules}); v.Finished != judged || (v.Health == atoll.Healthy) != judged {
			t.Errorf("%s that is done and is being deleted: %+v", kind, v)
		}
	}
}
