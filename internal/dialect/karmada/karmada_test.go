package karmada

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// hub is its tables in memory, over a store that tells them what is written.
type hub struct {
	mu             sync.Mutex
	store          client.Client
	behind         bool // the table of interpreters does not receive writes
	customizations map[string]*karmada.ResourceInterpreterCustomization
	interpreters   map[string]*v1alpha1.ResourceInterpreter
	writes         int
	events         []string

	onCustomization []func(string)
	onInterpreter   []func(kind, ns, name string)
}

type (
	customizations struct{ *hub }
	interpreters   struct{ *hub }
)

func newHub(t *testing.T) *hub {
	h := &hub{customizations: map[string]*karmada.ResourceInterpreterCustomization{}, interpreters: map[string]*v1alpha1.ResourceInterpreter{}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	wrote := func(o client.Object, err error) error {
		h.mu.Lock()
		if h.writes++; h.writes > 50 {
			panic("it writes for ever")
		}
		behind := h.behind
		h.mu.Unlock()
		if err == nil && !behind {
			h.putInterpreter(o.GetName(), o.(*v1alpha1.ResourceInterpreter).DeepCopy())
		}
		return err
	}
	h.store = interceptor.NewClient(ctrlfake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return wrote(o, c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return wrote(o, c.Update(ctx, o, opts...))
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			t.Error("something is deleted")
			return nil
		},
	})
	return h
}

// putInterpreter of an interpreter, as the watch tells it; nil: it is gone.
func (h *hub) putInterpreter(name string, i *v1alpha1.ResourceInterpreter) {
	h.mu.Lock()
	if h.interpreters[name] = i; i == nil {
		delete(h.interpreters, name)
	}
	h.mu.Unlock()
	for _, fn := range h.onInterpreter {
		fn("ResourceInterpreter", "", name)
	}
}

// bringObject a customization of this health; without one, it is gone.
func (h *hub) bringObject(name, health string) {
	h.mu.Lock()
	delete(h.customizations, name)
	if health != "" {
		c := &karmada.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
		c.Spec.Target = karmada.CustomizationTarget{APIVersion: "example.com/v1", Kind: "Thing"}
		c.Spec.Customizations.HealthInterpretation = &karmada.HealthInterpretation{LuaScript: health}
		h.customizations[name] = c
	}
	h.mu.Unlock()
	for _, fn := range h.onCustomization {
		fn(name)
	}
}

func (h customizations) Get(name string) (*karmada.ResourceInterpreterCustomization, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.customizations[name]
	return c, ok
}

func (h customizations) List() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.customizations {
		names = append(names, name)
	}
	return names
}
func (h customizations) Subscribe(fn func(string)) { h.onCustomization = append(h.onCustomization, fn) }

func (h interpreters) GetInterpreter(name string) (*v1alpha1.ResourceInterpreter, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, ok := h.interpreters[name]
	return i, ok
}
func (h interpreters) Subscribe(fn func(kind, ns, name string)) {
	h.onInterpreter = append(h.onInterpreter, fn)
}

func (h *hub) RecordEvent(about corev1.ObjectReference, reason atoll.Reason, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, about.Kind+"/"+about.Name+" "+string(about.UID)+" "+string(reason))
}

// storedText returns the health scripts in the store by name, with the maker of each.
func (h *hub) storedText(t *testing.T) string {
	t.Helper()
	var list v1alpha1.ResourceInterpreterList
	if err := h.store.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, fmt.Sprintf("%s: %s of %q", list.Items[i].Name, list.Items[i].Spec.Health.Lua, script.KarmadaSourceName(&list.Items[i])))
	}
	return strings.Join(slices.Sorted(slices.Values(out)), ", ")
}

// run a Reconciler over a hub; settle waits until nothing moves.
func run(t *testing.T, fn func(t *testing.T, h *hub)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.bringObject("early", "x")
		r := New(Config{Customizations: customizations{h}, Interpreters: interpreters{h}, Client: h.store, Events: h})
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		fn(t, h)
		stop()
		done.Wait()
	})
}

func TestInterpretersFollowTheirCustomizations(t *testing.T) {
	run(t, func(t *testing.T, h *hub) {
		want := func(when, stored string, writes int) {
			t.Helper()
			synctest.Wait()
			if got := h.storedText(t); got != stored || h.writes != writes {
				t.Errorf("%s: %s after %d writes, want %s after %d", when, got, h.writes, stored, writes)
			}
		}
		want("what was there before", `early: x of "early"`, 1)
		h.bringObject("things", "a")
		want("one that comes", `early: x of "early", things: a of "things"`, 2)
		h.bringObject("things", "a")
		want("one that stays as it is", `early: x of "early", things: a of "things"`, 2)
		h.bringObject("things", "b")
		want("an edit", `early: x of "early", things: b of "things"`, 3)

		edited := h.interpreters["things"].DeepCopy()
		edited.Spec.Health = &v1alpha1.InterpreterRule{Lua: "c", CEL: "true"}
		if err := h.store.Update(t.Context(), edited); err != nil {
			t.Fatal(err)
		}
		want("an edit of what was made", `early: x of "early", things: b of "things"`, 5)

		h.bringObject("things", "")
		h.bringObject("early", "")
		want("tables that are empty", `early: x of "early", things: b of "things"`, 5)
		if h.events != nil {
			t.Error(h.events)
		}
	})
}

func TestWhatOthersWroteIsNotTouched(t *testing.T) {
	run(t, func(t *testing.T, h *hub) {
		theirs := &v1alpha1.ResourceInterpreter{ObjectMeta: metav1.ObjectMeta{Name: "things"}, Spec: v1alpha1.ResourceInterpreterSpec{Health: &v1alpha1.InterpreterRule{Lua: "theirs"}}}
		if err := h.store.Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // else one reconcile runs for the object and one for its customization
		writes := h.writes
		h.bringObject("things", "a")
		synctest.Wait()
		if got := h.storedText(t); got != `early: x of "early", things: theirs of ""` || h.writes != writes {
			t.Errorf("stored: %s", got)
		}
		if want := []string{"ResourceInterpreterCustomization/things uid-things NameTaken"}; !slices.Equal(h.events, want) {
			t.Errorf("events %q, want %q", h.events, want)
		}
		// The store refuses, while the table does not have the object yet.
		h.mu.Lock()
		delete(h.interpreters, "things")
		h.mu.Unlock()
		h.bringObject("things", "b")
		synctest.Wait()
		if got := h.storedText(t); got != `early: x of "early", things: theirs of ""` {
			t.Errorf("stored: %s", got)
		}
		h.putInterpreter("things", theirs)
		synctest.Wait()
		if len(h.events) != 2 {
			t.Errorf("once the table has heard of it: events %q", h.events)
		}
	})
}

// A table that has not heard of the last write computes from an older version: the store
// refuses that, and it is done once the table has heard.
func TestAWriteIsFenced(t *testing.T) {
	run(t, func(t *testing.T, h *hub) {
		h.mu.Lock()
		h.behind = true
		h.mu.Unlock()
		h.bringObject("early", "y")
		synctest.Wait()
		h.bringObject("early", "z")
		synctest.Wait()
		var now v1alpha1.ResourceInterpreter
		if err := h.store.Get(t.Context(), client.ObjectKey{Name: "early"}, &now); err != nil {
			t.Fatal(err)
		}
		if now.Spec.Health.Lua != "y" {
			t.Errorf("an older version was written over by %q", now.Spec.Health.Lua)
		}
		h.mu.Lock()
		h.behind = false
		h.mu.Unlock()
		h.putInterpreter("early", &now)
		synctest.Wait()
		if got := h.storedText(t); got != `early: z of "early"` {
			t.Errorf("stored: %s", got)
		}
	})
}
