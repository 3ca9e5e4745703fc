package bootstrap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// recorder is a store that establishes each CRD, and records what is applied.
type recorder struct {
	client.WithWatch
	applied []string
}

func newRecorder(objects ...client.Object) *recorder {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	r := &recorder{}
	r.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			named := o.(interface {
				GetKind() string
				GetName() string
			})
			r.applied = append(r.applied, named.GetKind()+" "+named.GetName())
			if named.GetKind() != "CustomResourceDefinition" {
				return nil
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Name = named.GetName()
			crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
			return client.IgnoreAlreadyExists(c.Create(ctx, crd))
		},
	}).Build()
	return r
}

// A second installation applies the same objects, and keeps what an administrator made of the set.
func TestInstallIsRepeatable(t *testing.T) {
	c := newRecorder()
	if err := InstallHubObjects(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	first := c.applied
	for _, want := range []string{"CustomResourceDefinition clusters.atoll.dev", "Namespace " + atoll.SystemNamespace} {
		if !slices.Contains(first, want) {
			t.Errorf("%s is not installed, of %q", want, first)
		}
	}
	set := &v1alpha1.ClusterSet{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(schedule.NewDefaultSet()), set); err != nil {
		t.Fatal(err)
	}
	set.Labels = map[string]string{"by": "administrator"}
	if err := c.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	c.applied = nil
	if err := InstallHubObjects(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.applied, first) {
		t.Errorf("%q after %q", c.applied, first)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || set.Labels["by"] != "administrator" {
		t.Errorf("%v, %v", set.Labels, err)
	}
}

// Every shipped manifest has a kind and a name, and no creationTimestamp, which apply would own.
func TestManifestsAreComplete(t *testing.T) {
	for _, dir := range []fs.FS{crds.Files, manifestFiles} {
		objects, err := decodeManifests(dir)
		if err != nil || len(objects) == 0 {
			t.Fatal(len(objects), err)
		}
		for _, o := range objects {
			if _, timed := o.Object["metadata"].(map[string]any)["creationTimestamp"]; timed || o.GetKind() == "" || o.GetName() == "" {
				t.Errorf("%s %q", o.GetKind(), o.GetName())
			}
		}
	}
}

func TestDecodeManifests(t *testing.T) {
	objects, err := decodeManifests(fstest.MapFS{"a/b.yaml": {Data: []byte("# only a comment\n---\nkind: A\nmetadata: {name: a}\n---\nkind: B\nmetadata: {name: b}\n")}})
	if err != nil || len(objects) != 2 || objects[1].GetName() != "b" {
		t.Errorf("%v, %v", objects, err)
	}
	if _, err := decodeManifests(fstest.MapFS{"bad.yaml": {Data: []byte("a: [")}}); err == nil || !strings.Contains(err.Error(), "bad.yaml") {
		t.Errorf("%v", err)
	}
}

// A conflict means that another hub has published its address at the same time.
func TestPublishHubInfo(t *testing.T) {
	var sent *unstructured.Unstructured
	var answer error
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			raw, err := json.Marshal(o)
			if err != nil {
				return err
			}
			sent = &unstructured.Unstructured{}
			return cmp.Or(sent.UnmarshalJSON(raw), answer)
		},
	}).Build()
	if err := PublishHubInfo(t.Context(), c, "10.0.0.1:6444", "sha256:x", []byte("pem")); err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedStringMap(sent.Object, "data")
	if sent.GetNamespace() != atoll.SystemNamespace || data["gateway"] != "10.0.0.1:6444" || data["caHash"] != "sha256:x" || data["caCert"] != "pem" {
		t.Errorf("%v", sent.Object)
	}
	answer = apierrors.NewConflict(schema.GroupResource{}, "hub-info", errors.New("changed"))
	if err := PublishHubInfo(t.Context(), c, "", "", nil); err != nil {
		t.Error(err)
	}
	answer = apierrors.NewInternalError(errors.New("broken"))
	if err := PublishHubInfo(t.Context(), c, "", "", nil); err == nil {
		t.Error("no error")
	}
}
