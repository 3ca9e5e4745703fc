package changes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// Templates are the objects that a Source wants on the hub. The slices have one entry each.
type Templates struct {
	// Keys are the objects as an inventory has them, without UIDs.
	Keys    []v1alpha1.SourceObject
	Objects []*unstructured.Unstructured
	// Places are the files and lines of the objects. The policy of the Source has none.
	Places []render.Problem
	// Resources are where the hub's API serves the objects; empty for a kind that it does not serve.
	Resources []schema.GroupVersionResource
}

// ServedKind is where an API serves a kind.
type ServedKind struct {
	Resource     schema.GroupVersionResource
	IsNamespaced bool
}

// FindKind returns where the hub's API serves a kind; false for a kind that it does not serve.
type FindKind func(schema.GroupVersionKind) (ServedKind, bool)

// NewTemplates completes the objects of a commit, and adds the policy that places them. It changes the objects.
func NewTemplates(s *v1alpha1.Source, objects []render.Object, find FindKind) (t Templates, problems []render.Problem) {
	seen := map[Key]render.Problem{}
	for _, o := range objects {
		at := render.Problem{File: o.File, Line: o.Line}
		u := &unstructured.Unstructured{Object: o.Fields}
		kind, served := find(u.GroupVersionKind())
		switch {
		case served && !kind.IsNamespaced:
			u.SetNamespace("")
		case served && u.GetNamespace() == "":
			u.SetNamespace(cmp.Or(s.Spec.TargetNamespace, s.Namespace))
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelSource] = s.Name
		u.SetLabels(labels)
		t.add(u, kind.Resource, at)
		k := KeyOf(t.Keys[len(t.Keys)-1])
		if before, twice := seen[k]; twice {
			problems = append(problems, render.Problem{File: o.File, Line: o.Line, Message: fmt.Sprintf("%s %s is in %s:%d, too", k.Kind, k.Name, before.File, before.Line)})
		}
		seen[k] = at
	}
	policy := newPolicy(s, t.Keys)
	own := Key{Group: v1alpha1.GroupVersion.Group, Kind: "PropagationPolicy", Namespace: s.Namespace, Name: policyName(s)}
	if at, has := seen[own]; has && policy != nil {
		at.Message = "the Source itself makes PropagationPolicy " + own.Name + " of its placement; give the policy of the file another name"
		problems = append(problems, at)
	}
	if policy != nil && len(problems) == 0 {
		t.add(policy, v1alpha1.GroupVersion.WithResource("propagationpolicies"), render.Problem{})
	}
	return t, problems[:min(len(problems), render.MaxProblems)]
}

// add adds an object. Its hash is of everything that is applied.
func (t *Templates) add(u *unstructured.Unstructured, resource schema.GroupVersionResource, at render.Problem) {
	raw, err := json.Marshal(u.Object)
	if err != nil {
		panic(fmt.Sprintf("changes: an object of decoded JSON cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	t.Keys = append(t.Keys, v1alpha1.SourceObject{
		APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Hash: hex.EncodeToString(sum[:8]),
	})
	t.Objects, t.Places, t.Resources = append(t.Objects, u), append(t.Places, at), append(t.Resources, resource)
}

// FieldManagerOf returns the field manager of a Source.
func FieldManagerOf(s *v1alpha1.Source) string {
	name := "atoll-source:" + s.Namespace + "/" + s.Name
	if len(name) > 128 {
		name = name[:100] + atoll.HashParts([]byte(name))[:20]
	}
	return name
}

// DigestSettings returns a digest of what of a Source decides which objects there are. The types of its paths are of it, and
// so is the program that rendered them, so that another type and a new version of the hub remove nothing.
func DigestSettings(s *v1alpha1.Source, url string, builds []render.Build, program string) string {
	settings := []any{url, s.Spec.Ref, s.Spec.Paths, s.Spec.Exclude, s.Spec.TargetNamespace, s.Spec.Placement == nil && s.Spec.PlacementRef == nil}
	if s.Spec.Build != nil || len(builds) > 0 {
		settings = append(settings, s.Spec.Build, program)
	}
	for _, b := range builds {
		settings = append(settings, b.Dir, b.Type)
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("changes: settings cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
