package bind

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
	"atoll.dev/atoll/internal/claim"
)

// hubful is a hub's tables with many applications, each a Deployment and a policy that
// names it.
type hubful struct {
	Templates
	templates map[atoll.ItemKey]*unstructured.Unstructured
	byNS      map[string][]*unstructured.Unstructured
	own       map[[2]string]*v1alpha1.PropagationPolicy
	spaces    []string
}

func (h *hubful) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := h.templates[key]
	return t, ok
}
func (h *hubful) InNamespace(ns string) []*unstructured.Unstructured { return h.byNS[ns] }
func (h *hubful) Resource(atoll.ItemKey) (schema.GroupVersionResource, bool) {
	return schema.GroupVersionResource{}, false
}

type rules struct {
	Policies
	*hubful
}

func (h rules) PropagationPolicy(ns, name string) (*v1alpha1.PropagationPolicy, bool) {
	p, ok := h.own[[2]string{ns, name}]
	return p, ok
}

type spaces struct{ *hubful }

func (s spaces) Get(name string) (*corev1.Namespace, bool) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, true
}
func (s spaces) List() []string         { return s.spaces }
func (s spaces) Subscribe(func(string)) {}

func edition(ns, name, image string, generation int64) *unstructured.Unstructured {
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

func (h *hubful) put(t *unstructured.Unstructured) atoll.ItemKey {
	key := claim.KeyOf(t)
	h.templates[key] = t
	return key
}

// filled is a Binder over so many applications in so many namespaces, that has decided
// on all of them.
func filled(b *testing.B, namespaces, apps int) (*hubful, *Binder) {
	b.Helper()
	h := &hubful{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, byNS: map[string][]*unstructured.Unstructured{}, own: map[[2]string]*v1alpha1.PropagationPolicy{}}
	binder := &Binder{
		Options: Options{Templates: h, Policies: rules{hubful: h}, Namespaces: spaces{h}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		claims:  newClaims(), inbox: newInbox(), unread: newWaits[schema.GroupKind](), homeless: newWaits[claim.BundleID](), placeless: newWaits[claim.BundleID](),
		overridden: map[policyKey]kindSet{}, namespaces: map[string]string{}, seen: map[atoll.ItemKey]looked{}, decided: map[string]string{},
	}
	binder.quiet = newDebouncer(func(claim.BundleID) {})
	binder.reports = newReporter(binder)
	b.Cleanup(func() {
		binder.quiet.stop()
		binder.reports.queue.ShutDown()
	})
	for i := range apps {
		ns, name := fmt.Sprint("ns", i%namespaces), fmt.Sprint("app", i)
		if i < namespaces {
			h.spaces = append(h.spaces, ns)
		}
		t := edition(ns, name, "web:1", 1)
		h.put(t)
		h.byNS[ns] = append(h.byNS[ns], t)
		p := pp(name, name)
		p.Namespace = ns
		h.own[[2]string{ns, name}] = p
		binder.handle(event{policy: policyKey{ppKind, ns, name}})
		binder.drain()
	}
	return h, binder
}

// drain what is in the inbox, and count it.
func (b *Binder) drain() (n int) {
	for ; ; n++ {
		e, ok := b.inbox.take()
		if !ok {
			return n
		}
		b.handle(e)
	}
}

// BenchmarkBind is one edit of a template, and one of a policy, where there are 1,000
// applications, in one namespace and each in its own.
func BenchmarkBind(b *testing.B) {
	for _, namespaces := range []int{1, 1000} {
		b.Run(fmt.Sprint("template/namespaces=", namespaces), func(b *testing.B) {
			h, binder := filled(b, namespaces, 1000)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				binder.handle(event{template: h.put(edition("ns0", "app0", fmt.Sprint("web:", i), int64(i)))})
			}
		})
		b.Run(fmt.Sprint("policy/namespaces=", namespaces), func(b *testing.B) {
			_, binder := filled(b, namespaces, 1000)
			looked := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				binder.handle(event{policy: policyKey{ppKind, "ns0", "app0"}})
				looked = max(looked, binder.drain())
			}
			b.ReportMetric(float64(looked), "templates")
		})
	}
}

// BenchmarkPlan is the plan of a Bundle of so many objects, of which one was edited.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := &hubful{templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
			in := claim.PlanInput{Intent: &claim.Intent{}, World: world{&Binder{Options: Options{Templates: h}, claims: newClaims()}, claim.BundleID{Namespace: "shop", Name: "all"}}}
			for i := range n {
				in.Claimed = append(in.Claimed, h.put(edition("shop", fmt.Sprint("app", i), "web:1", 1)))
			}
			in.Fingerprint = new(Prints).Of
			first := claim.Plan(in)
			in.Previous = &first.Content
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h.put(edition("shop", "app0", fmt.Sprint("web:2", i), int64(i+2)))
				if out := claim.Plan(in); !out.Cut {
					b.Fatal("nothing to cut")
				}
			}
		})
	}
}
