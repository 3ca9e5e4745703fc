package binder

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// statusHub is a hub with one template, whose status a Binder writes. The Binder reads what it wrote.
type statusHub struct {
	t *testing.T
	*Binder
	templates *guardedTemplates
	key       atoll.ItemKey
	writes    int
	conflicts int // of the next writes
}

func newStatusHub(t *testing.T, template *unstructured.Unstructured) *statusHub {
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	h := &statusHub{t: t, key: policymatch.ItemKeyOf(template)}
	h.Binder = newDefaultBinder(nil, &eventLog{events: recordedRefusals{}}, template)
	h.templates = &guardedTemplates{Templates: h.Templates}
	h.Settings, h.Binder.Templates = nil, h.templates
	h.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(template).WithStatusSubresource(template).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if h.conflicts > 0 {
				h.conflicts--
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
			}
			h.writes++
			if err := c.SubResource(sub).Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			h.storeTemplate(o.(*unstructured.Unstructured))
			return nil
		},
	}).Build()
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(template.GroupVersionKind())
	if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(template), stored); err != nil {
		t.Fatal(err)
	}
	h.storeTemplate(stored)
	return h
}

func (h *statusHub) storeTemplate(o *unstructured.Unstructured) {
	h.templates.mu.Lock()
	defer h.templates.mu.Unlock()
	h.templates.Templates.(*fakeHub).templates[h.key] = o
}

// runLoop runs the loop that writes statuses, and returns a function that ends it.
func (h *statusHub) runLoop() (end func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	h.unselected.AcceptKeys()
	running.Go(func() { h.unselected.Run(ctx, nil) })
	return func() { cancel(); running.Wait() }
}

// editTemplate changes the template as a user does, and lets the Binder handle it.
func (h *statusHub) editTemplate(change func(o *unstructured.Unstructured)) {
	o, _ := h.templates.Get(h.key)
	next := o.DeepCopy()
	change(next)
	if err := h.Client.Update(h.t.Context(), next); err != nil {
		h.t.Fatal(err)
	}
	h.storeTemplate(next)
	h.assignToBundle(next)
	time.Sleep(reportWaitAfter + time.Minute)
	synctest.Wait()
}

// readCondition returns the condition Available and the observed generation.
func (h *statusHub) readCondition() (reason, message string, observed int64) {
	o, _ := h.templates.Get(h.key)
	observed, _, _ = unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, raw := range conditions {
		if c := raw.(map[string]any); c["type"] == "Available" && c["status"] == "False" && c["lastTransitionTime"] != "" {
			reason, _ = c["reason"].(string)
			message, _ = c["message"].(string)
		}
	}
	return reason, message, observed
}

// An object that nothing places has a condition of its kind, of its present generation, until something places it.
func TestAnObjectThatNothingPlacesHasACondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newUnplacedTemplate("Deployment", "web", time.Now())
		h := newStatusHub(t, web)
		defer h.runLoop()()
		h.conflicts = 1
		h.editTemplate(func(o *unstructured.Unstructured) { o.SetGeneration(1) })
		reason, message, observed := h.readCondition()
		if want := "nothing places it, so that it stays on the hub. To place it: kubectl annotate deployment/web -n shop atoll.dev/clusters='*'"; reason != string(atoll.ReasonNotSelected) || message != want || observed != 1 || h.writes != 1 {
			t.Errorf("%s: %q of generation %d after %d writes", reason, message, observed, h.writes)
		}
		h.editTemplate(func(*unstructured.Unstructured) {})
		if h.writes != 1 {
			t.Errorf("an object without a change is written %d times", h.writes)
		}
		h.editTemplate(func(o *unstructured.Unstructured) { o.SetGeneration(2) })
		if reason, _, observed := h.readCondition(); reason != string(atoll.ReasonNotSelected) || observed != 2 {
			t.Errorf("after an edit: %q of generation %d", reason, observed)
		}
		h.editTemplate(func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{atoll.AnnotationClusters: "a"}) })
		if reason, _, _ := h.readCondition(); reason != "" || h.writes != 3 {
			t.Errorf("an object that is placed has the reason %q after %d writes", reason, h.writes)
		}
	})
}

// An object that stays on the hub on purpose has no such condition, and the status of another writer stays.
func TestWhichStatusesSayThatNothingPlacesAnObject(t *testing.T) {
	for what, tc := range map[string]struct {
		status any
		age    time.Duration
		want   string
	}{
		"no status":                        {nil, 0, string(atoll.ReasonNotSelected)},
		"counts of zero":                   {map[string]any{"replicas": int64(0)}, 0, string(atoll.ReasonNotSelected)},
		"an old object":                    {nil, time.Hour, ""},
		"counts of another writer":         {map[string]any{"replicas": int64(2)}, 0, ""},
		"a condition of another writer":    {map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "lastTransitionTime": "2030-01-02T03:04:05Z"}}}, 0, "MinimumReplicasUnavailable"},
		"another condition beside it":      {map[string]any{"conditions": []any{map[string]any{"type": "Progressing", "status": "True"}}}, 0, ""},
		"an old object with the condition": {map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": "False", "reason": "NotSelected", "lastTransitionTime": "2030-01-02T03:04:05Z"}}}, time.Hour, "NotSelected"},
	} {
		synctest.Test(t, func(t *testing.T) {
			web := newUnplacedTemplate("Deployment", "web", time.Now().Add(-tc.age))
			if tc.status != nil {
				web.Object["status"] = tc.status
			}
			h := newStatusHub(t, web)
			defer h.runLoop()()
			h.editTemplate(func(o *unstructured.Unstructured) { o.SetGeneration(1) })
			if reason, _, _ := h.readCondition(); reason != tc.want {
				t.Errorf("%s: the reason is %q, want %q", what, reason, tc.want)
			}
			h.editTemplate(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{atoll.KeyHubOnly: "true"}) })
			if reason, _, _ := h.readCondition(); reason == string(atoll.ReasonNotSelected) {
				t.Errorf("%s: an object that stays on the hub on purpose has the condition", what)
			}
		})
	}
}
