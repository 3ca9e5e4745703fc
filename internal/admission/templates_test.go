package admission

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// placedNames are the objects that are placed, by name. It records the last subject.
type placedNames struct {
	Placed
	names []string
	last  policymatch.Subject
}

func (p *placedNames) IsPlacedOrNeeded(sub policymatch.Subject) bool {
	p.last = sub
	return slices.Contains(p.names, sub.Key.Name)
}

// A placed template has the finalizer, and only the hub removes it.
func TestHoldFinalizer(t *testing.T) {
	const ann, hub = "ann", "hub"
	widget := func(name string, finalizers ...string) *unstructured.Unstructured {
		u := newWidget(1, finalizers...)
		u.SetName(name)
		return u
	}
	deleted := widget("placed", "a/b")
	deleted.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	of := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	for _, c := range []struct {
		name       string
		kind       schema.GroupKind
		op         admission.Operation
		user       string
		now, old   *unstructured.Unstructured
		unready    bool
		finalizers []string
	}{
		{"created", of, admission.Create, ann, widget("placed"), nil, false, []string{atoll.Finalizer}},
		{"with another finalizer", of, admission.Create, ann, widget("placed", "a/b"), nil, false, []string{"a/b", atoll.Finalizer}},
		{"placed nowhere", of, admission.Create, ann, widget("other"), nil, false, nil},
		{"it has the finalizer", of, admission.Update, ann, widget("placed", atoll.Finalizer), widget("placed"), false, []string{atoll.Finalizer}},
		{"a user replaces it", of, admission.Update, ann, widget("placed"), widget("placed", atoll.Finalizer), false, []string{atoll.Finalizer}},
		{"the hub releases it", of, admission.Update, hub, widget("placed"), widget("placed", atoll.Finalizer), false, nil},
		{"the hub updates it", of, admission.Update, hub, widget("placed"), widget("placed"), false, []string{atoll.Finalizer}},
		{"the hub creates it", of, admission.Create, hub, widget("placed"), nil, false, []string{atoll.Finalizer}},
		{"it is being deleted", of, admission.Update, ann, deleted, widget("placed", "a/b"), false, []string{"a/b"}},
		{"of a kind of Atoll", schema.GroupKind{Group: "atoll.dev", Kind: "Placement"}, admission.Create, ann, widget("placed"), nil, false, nil},
		{"the hub is not ready", of, admission.Create, ann, widget("placed"), nil, true, nil},
	} {
		p := New(Options{
			Own: func(u user.Info) bool { return u.GetName() == hub },
			Hub: func() (Hub, bool) { return Hub{Placed: &placedNames{names: []string{"placed"}}}, !c.unready },
		})
		now := c.now.DeepCopy()
		var old runtime.Object
		if c.old != nil {
			old = c.old
		}
		a := admission.NewAttributesRecord(now, old, c.kind.WithVersion("v1"), "shop", now.GetName(), schema.GroupVersionResource{}, "", c.op, nil, false, &user.DefaultInfo{Name: c.user})
		if err := p.ensureTemplateFinalizer(a); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := now.GetFinalizers(); !slices.Equal(got, c.finalizers) {
			t.Errorf("%s: finalizers %v, want %v", c.name, got, c.finalizers)
		}
	}
}

// The owner of a template is decided by its key, and by the type of a Secret.
func TestHoldFinalizerPassesTheSubject(t *testing.T) {
	placed := &placedNames{}
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Placed: placed})})
	s := &core.Secret{Type: core.SecretTypeTLS}
	a := admission.NewAttributesRecord(s, nil, schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "shop", "s", schema.GroupVersionResource{}, "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	if err := p.ensureTemplateFinalizer(a); err != nil {
		t.Fatal(err)
	}
	if want := (atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}); placed.last.Key != want || placed.last.SecretType != "kubernetes.io/tls" {
		t.Errorf("%+v, want %v of type kubernetes.io/tls", placed.last, want)
	}
	review := admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{Version: "v1", Kind: "Widget"}, "shop", "w", schema.GroupVersionResource{}, "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	if err := p.ensureTemplateFinalizer(review); err != nil {
		t.Errorf("an object that is not stored: %v", err)
	}
}
