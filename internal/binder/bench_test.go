package binder

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
)

// fakeHub is a hub's tables with many applications, each a Deployment and a policy that
// names it.
type fakeHub struct {
	Templates
	Kinds
	templates   map[atoll.ItemKey]*unstructured.Unstructured
	byNamespace map[string][]*unstructured.Unstructured
	ownPolicies map[[2]string]*v1alpha1.PropagationPolicy
	namespaces  []string
}

func (h *fakeHub) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := h.templates[key]
	return t, ok
}
func (h *fakeHub) InNamespace(ns string) []*unstructured.Unstructured { return h.byNamespace[ns] }
func (h *fakeHub) ResourceOfKey(atoll.ItemKey) (schema.GroupVersionResource, bool) {
	return schema.GroupVersionResource{}, false
}

type fakeHubPolicies struct {
	Policies
	Overrides
	*fakeHub
}

func (h fakeHubPolicies) GetPropagationPolicy(ns, name string) (*v1alpha1.PropagationPolicy, bool) {
	p, ok := h.ownPolicies[[2]string{ns, name}]
	return p, ok
}

type fakeHubNamespaces struct{ *fakeHub }

func (s fakeHubNamespaces) Get(name string) (*corev1.Namespace, bool) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, true
}
func (s fakeHubNamespaces) List() []string         { return s.namespaces }
func (s fakeHubNamespaces) Subscribe(func(string)) {}

func newDeployment(ns, name, image string, generation int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"name": name, "namespace": ns, "uid": "uid-" + ns + name, "generation": generation, "finalizers": []any{atoll.Finalizer},
			"managedFields": []any{map[string]any{"manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{
				"f:spec": map[string]any{"f:replicas": map[string]any{}, "f:template": map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{
					`k:{"name":"web"}`: map[string]any{".": map[string]any{}, "f:name": map[string]any{}, "f:image": map[string]any{}},
				}}}},
			}}},
		},
		"spec": map[string]any{"replicas": int64(2), "template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "web", "image": image, "imagePullPolicy": "Always"},
		}}}},
	}}
}

func (h *fakeHub) put(t *unstructured.Unstructured) atoll.ItemKey {
	key := policymatch.ItemKeyOf(t)
	h.templates[key] = t
	return key
}

// newFilledHub is a Binder over so many applications in so many namespaces, that has decided
// on all of them.
func newFilledHub(b *testing.B, namespaces, apps int) (*fakeHub, *Binder) {
	b.Helper()
	h := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, byNamespace: map[string][]*unstructured.Unstructured{}, ownPolicies: map[[2]string]*v1alpha1.PropagationPolicy{}}
	binder := &Binder{
		Options:   Options{Templates: h, Kinds: h, Policies: fakeHubPolicies{fakeHub: h}, Overrides: fakeHubPolicies{fakeHub: h}, Namespaces: fakeHubNamespaces{h}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		ownership: newOwnershipIndex(), events: newEventQueue(),
		overrideSelections: map[PolicyKey]objectSet{}, lastClustersAnnotation: map[string]string{}, lastTemplates: map[atoll.ItemKey]templateState{}, lastRecallDecision: map[string]string{},
	}
	binder.touchBundle = func(policymatch.BundleID) {}
	binder.policyStatus = newPolicyStatusWriter(binder)
	for i := range apps {
		ns, name := fmt.Sprint("ns", i%namespaces), fmt.Sprint("app", i)
		if i < namespaces {
			h.namespaces = append(h.namespaces, ns)
		}
		t := newDeployment(ns, name, "web:1", 1)
		h.put(t)
		h.byNamespace[ns] = append(h.byNamespace[ns], t)
		p := newPolicy(name, name)
		p.Namespace = ns
		h.ownPolicies[[2]string{ns, name}] = p
		binder.handleEvent(tableEvent{policy: PolicyKey{policyKind, ns, name}})
		binder.drainEvents()
	}
	return h, binder
}

// drainEvents what is in the inbox, and count it.
func (b *Binder) drainEvents() (n int) {
	for ; ; n++ {
		e, ok := b.events.takeNext()
		if !ok {
			return n
		}
		b.handleEvent(e)
	}
}

// BenchmarkBind is one edit of a template, and one of a policy, where there are 1,000
// applications, in one namespace and each in its own.
func BenchmarkBind(b *testing.B) {
	for _, namespaces := range []int{1, 1000} {
		b.Run(fmt.Sprint("template/namespaces=", namespaces), func(b *testing.B) {
			h, binder := newFilledHub(b, namespaces, 1000)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				binder.handleEvent(tableEvent{template: h.put(newDeployment("ns0", "app0", fmt.Sprint("web:", i), int64(i)))})
			}
		})
		b.Run(fmt.Sprint("policy/namespaces=", namespaces), func(b *testing.B) {
			_, binder := newFilledHub(b, namespaces, 1000)
			looked := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				binder.handleEvent(tableEvent{policy: PolicyKey{policyKind, "ns0", "app0"}})
				looked = max(looked, binder.drainEvents())
			}
			b.ReportMetric(float64(looked), "templates")
		})
	}
}

// BenchmarkPlan is the plan of a Bundle of so many objects, of which one was edited.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
			world := bundleWorld{&Binder{Options: Options{Templates: h, Kinds: h}, ownership: newOwnershipIndex()}, policymatch.BundleID{Namespace: "shop", Name: "all"}}
			in := bundlecontent.Input{Intent: &policymatch.Intent{}, Templates: world, Holders: world}
			for i := range n {
				in.Chosen = append(in.Chosen, h.put(newDeployment("shop", fmt.Sprint("app", i), "web:1", 1)))
			}
			in.Fingerprint = new(FingerprintCache).FingerprintOf
			first := bundlecontent.NextContent(in)
			in.Previous = &first.Content
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h.put(newDeployment("shop", "app0", fmt.Sprint("web:2", i), int64(i+2)))
				if out := bundlecontent.NextContent(in); !out.NeedsRevision {
					b.Fatal("nothing to cut")
				}
			}
		})
	}
}
