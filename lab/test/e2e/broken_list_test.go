package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

const widgetsAndGadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.broken.example}
spec:
  group: broken.example
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.broken.example}
spec:
  group: broken.example
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

const mixedPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: $KIND, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: broken.example/v1, kind: $KIND}, {apiVersion: v1, kind: ConfigMap, name: with-$NAME}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
---
apiVersion: broken.example/v1
kind: $KIND
metadata: {name: one, namespace: $NS}
spec: {size: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: with-$NAME, namespace: $NS}
data: {value: "1"}
`

// boundState is the hub's state of the Bundle of a policy: the number of its latest
// Revision, its number of items, and the Bundle's conditions.
type boundState struct {
	number, items int64
	bundle        *unstructured.Unstructured
}

func (s *sharedHub) boundStateOf(ctx context.Context, ns, policy string) (boundState, error) {
	var out boundState
	var bundles, revisions unstructured.UnstructuredList
	bundles.SetAPIVersion("atoll.dev/v1alpha1")
	bundles.SetKind("BundleList")
	if err := s.client.List(ctx, &bundles, client.InNamespace(ns)); err != nil {
		return out, err
	}
	for i := range bundles.Items {
		if name, _, _ := unstructured.NestedString(bundles.Items[i].Object, "spec", "source", "name"); name == policy {
			out.bundle = &bundles.Items[i]
		}
	}
	if out.bundle == nil {
		return out, fmt.Errorf("policy %s has no Bundle", policy)
	}
	revisions.SetAPIVersion("engine.atoll.dev/v1alpha1")
	revisions.SetKind("RevisionList")
	if err := s.client.List(ctx, &revisions); err != nil {
		return out, err
	}
	for _, r := range revisions.Items {
		of, _, _ := unstructured.NestedString(r.Object, "spec", "bundle", "uid")
		number, _, _ := unstructured.NestedInt64(r.Object, "spec", "number")
		if of == string(out.bundle.GetUID()) && number > out.number {
			out.number = number
			out.items, _, _ = unstructured.NestedInt64(r.Object, "spec", "items")
		}
	}
	return out, nil
}

// has checks the latest Revision of a policy's Bundle.
func (s *sharedHub) has(ns, policy string, number, items int64) func(context.Context) error {
	return func(ctx context.Context) error {
		b, err := s.boundStateOf(ctx, ns, policy)
		if err != nil {
			return err
		}
		if b.number != number || b.items != items {
			return fmt.Errorf("the Bundle of %s has revision %d of %d items, want %d of %d", policy, b.number, b.items, number, items)
		}
		return nil
	}
}

// TestOneKindThatCannotBeListed starts a hub over a store with an unreadable object.
// Bundles with objects of its kind stay unchanged with a reason, others continue, and all
// catch up when the object is gone.
func TestOneKindThatCannotBeListed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a hub")
	}
	h := newHubs(t)
	h.a = h.startHub(t, "a", h.doors[0])
	h.a.awaitReady(t)
	const ns = "broken"
	widgets, gadgets := h.placeBoth(t, ns)

	h.a.sendSignal(t, syscall.SIGTERM)
	if code := h.a.waitExit(t); code != 0 {
		t.Errorf("the hub ended with exit code %d after SIGTERM", code)
	}
	store := h.etcdClient(t)
	const key = "/registry/broken.example/widgets/" + ns + "/damaged"
	if _, err := store.Put(t.Context(), key, "this is no JSON"); err != nil {
		t.Fatal(err)
	}
	h.a = h.startHub(t, "a", h.doors[0])
	h.a.awaitReady(t)

	h.a.patch(t, configMap(ns, "with-widgets"), `{"data":{"value":"2"}}`)
	h.a.patch(t, configMap(ns, "with-gadgets"), `{"data":{"value":"2"}}`)
	testwait.UntilNil(t, "other kinds go on", h.a.has(ns, "gadgets", gadgets.number+1, 2))
	h.saysCannotRead(t, ns)
	if err := h.a.has(ns, "widgets", widgets.number, 2)(t.Context()); err != nil {
		t.Errorf("a Revision was cut while its source could not be read: %s", err)
	}

	if _, err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "what waited is made up for", h.a.has(ns, "widgets", widgets.number+1, 2))
	testwait.UntilNil(t, "the Bundle takes it back", func(ctx context.Context) error {
		b, err := h.a.boundStateOf(ctx, ns, "widgets")
		if err != nil {
			return err
		}
		if status := conditionOf(b.bundle, "Bound"); status != "True" {
			return errors.New("condition Bound is " + status)
		}
		return nil
	})
}

func messageOf(o *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return fmt.Sprint(m["message"])
		}
	}
	return ""
}

// placeBoth places objects of both kinds, each with a ConfigMap in its Bundle.
func (h *hubPair) placeBoth(t *testing.T, ns string) (widgets, gadgets boundState) {
	t.Helper()
	h.a.apply(t, ns, widgetsAndGadgets+"\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	for kind, name := range map[string]string{"Widget": "widgets", "Gadget": "gadgets"} {
		text := strings.NewReplacer("$KIND", kind, "$NAME", name).Replace(mixedPolicy)
		text = strings.Replace(text, "metadata: {name: "+kind, "metadata: {name: "+name, 1)
		testwait.UntilNil(t, "the CRD is served", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion("broken.example/v1")
			list.SetKind(kind + "List")
			if err := h.a.client.List(ctx, list); err != nil {
				return err
			}
			return nil
		})
		h.a.apply(t, ns, text)
	}
	testwait.UntilNil(t, "first revisions", func(ctx context.Context) error {
		for _, policy := range []string{"widgets", "gadgets"} {
			if b, err := h.a.boundStateOf(ctx, ns, policy); err != nil || b.items != 2 {
				return fmt.Errorf("%s: %d items: %v", policy, b.items, err)
			}
		}
		return nil
	})
	var err error
	if widgets, err = h.a.boundStateOf(t.Context(), ns, "widgets"); err != nil {
		t.Fatal(err)
	}
	if gadgets, err = h.a.boundStateOf(t.Context(), ns, "gadgets"); err != nil {
		t.Fatal(err)
	}
	return widgets, gadgets
}

// saysCannotRead: Bundle, policy and log show the waiting parts and their cause.
func (h *hubPair) saysCannotRead(t *testing.T, ns string) {
	t.Helper()
	testwait.UntilNil(t, "the Bundle says what it waits for", func(ctx context.Context) error {
		b, err := h.a.boundStateOf(ctx, ns, "widgets")
		if err != nil {
			return err
		}
		said := messageOf(b.bundle, "Bound")
		for _, want := range []string{"Widget.broken.example cannot be read since", "repair or remove"} {
			if !strings.Contains(said, want) {
				return fmt.Errorf("condition Bound says %q, which lacks %q", said, want)
			}
		}
		return nil
	})
	testwait.UntilNil(t, "the policy says so too", func(ctx context.Context) error {
		p := configMap(ns, "widgets")
		p.SetAPIVersion("atoll.dev/v1alpha1")
		p.SetKind("PropagationPolicy")
		o, err := getIfExists(ctx, h.a.client, p)
		if err != nil || o == nil {
			return fmt.Errorf("no policy: %v", err)
		}
		if said := messageOf(o, "Applied"); !strings.Contains(said, "cannot be read since") {
			return fmt.Errorf("condition Applied says %q", said)
		}
		return nil
	})
	h.a.waitForLog(t, "a kind cannot be read")
}
