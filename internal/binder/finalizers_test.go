package binder

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/internal/atoll"
)

// recordedCall is a write of an object: its verb, the object without its content, and the patch or the UID
// that must be the object's.
type recordedCall struct{ verb, object, body string }

// recordObjectCalls returns a client that records patches and deletions, and answers them with an error.
func recordObjectCalls(calls *[]recordedCall, answer *error) client.Client {
	name := func(o client.Object) string {
		return o.GetObjectKind().GroupVersionKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
	}
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			raw, err := patch.Data(o)
			if patch.Type() != types.MergePatchType || len(opts) != 1 || opts[0] != fieldOwner {
				err = errors.Join(err, errors.New("not a merge patch of the hub"))
			}
			*calls = append(*calls, recordedCall{"patch", name(o), string(raw)})
			return errors.Join(err, *answer)
		},
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			var all client.DeleteOptions
			all.ApplyOptions(opts)
			uid := ""
			if all.Preconditions != nil && all.Preconditions.UID != nil {
				uid = string(*all.Preconditions.UID)
			}
			*calls = append(*calls, recordedCall{"delete", name(o), uid})
			return *answer
		},
	}).Build()
}

// A template gets the finalizer once, by the cheap way where there is one. The patch keeps its other finalizers and
// fails when the template has changed. A template that is gone, or going, makes the plan stale.
func TestFinalizersOfTemplatesAdmittedBeforeTheirPolicy(t *testing.T) {
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	patched := []recordedCall{{"patch", "apps/v1, Kind=Deployment shop/web", `{"metadata":{"finalizers":["x.dev/f","` + atoll.Finalizer + `"],"resourceVersion":"7"}}`}}
	puts := func(done bool, err error) func(context.Context, *unstructured.Unstructured, string) (bool, error) {
		return func(_ context.Context, o *unstructured.Unstructured, finalizer string) (bool, error) {
			if o.GetName() != "web" || finalizer != atoll.Finalizer {
				return false, errors.New("another object or finalizer")
			}
			return done, err
		}
	}
	conflict := apierrors.NewConflict(resource, "web", errors.New("it has changed"))
	for what, tc := range map[string]struct {
		change func(l *fakeTables, o *unstructured.Unstructured)
		put    func(context.Context, *unstructured.Unstructured, string) (bool, error)
		answer error
		want   []recordedCall
		fails  error
	}{
		"it has the finalizer":  {change: func(_ *fakeTables, o *unstructured.Unstructured) { o.SetFinalizers([]string{atoll.Finalizer}) }},
		"it has not":            {want: patched},
		"the cheap way does it": {put: puts(true, nil)},
		"the cheap way cannot":  {put: puts(false, nil), want: patched},
		"the cheap way fails":   {put: puts(false, conflict), fails: conflict},
		"it is gone":            {change: func(l *fakeTables, _ *unstructured.Unstructured) { delete(l.templates, web) }, fails: errPlanStale},
		"it is being deleted": {change: func(_ *fakeTables, o *unstructured.Unstructured) {
			o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		}, fails: errPlanStale},
		"it has changed since": {answer: conflict, want: patched, fails: conflict},
		"it is gone since":     {answer: apierrors.NewNotFound(resource, "web"), want: patched, fails: errPlanStale},
	} {
		l, b := newShopTables(t)
		o := l.templates[web]
		o.SetFinalizers([]string{"x.dev/f"})
		o.SetResourceVersion("7")
		if tc.change != nil {
			tc.change(l, o)
		}
		before := o.DeepCopy()
		var calls []recordedCall
		b.PutFinalizer, b.Client = tc.put, recordObjectCalls(&calls, &tc.answer)
		err := b.addFinalizers(t.Context(), []atoll.ItemKey{web})
		if !errors.Is(err, tc.fails) || (err == nil) != (tc.fails == nil) || err != nil && !strings.HasPrefix(err.Error(), "add the finalizer to "+web.String()+": ") {
			t.Errorf("%s: %v, want %v", what, err, tc.fails)
		}
		if !reflect.DeepEqual(calls, tc.want) {
			t.Errorf("%s: writes %v, want %v", what, calls, tc.want)
		}
		if !reflect.DeepEqual(o, before) {
			t.Errorf("%s: the table's object is changed", what)
		}
	}
}

// Each template of a plan gets its finalizer, also behind one that has it.
func TestEveryTemplateOfAPlanGetsItsFinalizer(t *testing.T) {
	l, b := newShopTables(t)
	api, web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "api"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	worker := newDeployment("shop", "worker", "worker:1", 1)
	worker.SetFinalizers(nil)
	l.templates[web].SetFinalizers(nil)
	last := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "worker"}
	l.templates[last] = worker
	var calls []recordedCall
	var answer error
	b.Client = recordObjectCalls(&calls, &answer)
	if err := b.addFinalizers(t.Context(), []atoll.ItemKey{api, web, last}); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 2 || !strings.HasSuffix(calls[0].object, "shop/web") || !strings.HasSuffix(calls[1].object, "shop/worker") || !json.Valid([]byte(calls[1].body)) {
		t.Errorf("writes %v", calls)
	}
}
