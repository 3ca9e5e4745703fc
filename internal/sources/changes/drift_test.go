package changes

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

const ownManager = "atoll-source:shop/web"

func parseLive(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return &u
}

// ownedBy returns a Deployment whose managedFields have entries, as MANAGER OPERATION SUBRESOURCE FIELDS.
func ownedBy(t *testing.T, replicas, image string, entries ...string) *unstructured.Unstructured {
	t.Helper()
	text := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, labels: {atoll.dev/source: web}, managedFields: ["
	for i, e := range entries {
		part := strings.SplitN(e, " ", 4)
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("{manager: '%s', operation: %s, subresource: '%s', fieldsType: FieldsV1, fieldsV1: %s}", part[0], part[1], strings.Trim(part[2], "-"), part[3])
	}
	return parseLive(t, text+"]}, spec: {replicas: "+replicas+", template: {spec: {containers: [{name: web, image: "+image+"}]}}}, status: {replicas: "+replicas+"}}")
}

const (
	ownsBoth  = ownManager + ` Apply - {"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}}}}}}}`
	ownsImage = ownManager + ` Apply - {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}}}}}}}`
)

// The hash is of the fields that the manager applied, and of nothing else.
func TestHashOwnedFields(t *testing.T) {
	same := []*unstructured.Unstructured{
		ownedBy(t, "3", "a", ownsBoth), ownedBy(t, "7", "b", ownsBoth), ownedBy(t, "3", "a", `kubectl Update - {"f:data": {}}`, ownsBoth),
		ownedBy(t, "3", "a", ownsBoth, ownManager+` Update - {"f:status": {}}`),
	}
	for i, u := range same {
		if got, want := HashOwnedFields(u, ownManager), HashOwnedFields(same[0], ownManager); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	seen := map[string]string{}
	for name, u := range map[string]*unstructured.Unstructured{
		"all fields": same[0], "less fields": ownedBy(t, "3", "a", ownsImage), "none": ownedBy(t, "3", "a", `kubectl Update - {"f:data": {}}`), "gone": nil,
	} {
		hash := HashOwnedFields(u, ownManager)
		if other, twice := seen[hash]; twice {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[hash] = name
	}
}

// A change is considered once, and again when the object changes once more or is as applied again.
func TestHasDriftChanged(t *testing.T) {
	full, less := ownedBy(t, "3", "a", ownsBoth), ownedBy(t, "3", "a", ownsImage)
	fields, lost := HashOwnedFields(full, ownManager), HashOwnedFields(less, ownManager)
	for name, c := range map[string]struct {
		entry v1alpha1.SourceObject
		live  *unstructured.Unstructured
		want  bool
	}{
		"as applied":                   {v1alpha1.SourceObject{Hash: "h", Fields: fields}, full, false},
		"a field is lost":              {v1alpha1.SourceObject{Hash: "h", Fields: fields}, less, true},
		"known":                        {v1alpha1.SourceObject{Hash: "h", Fields: fields, Drift: lost}, less, false},
		"known and allowed":            {v1alpha1.SourceObject{Hash: "h", Fields: fields, Drift: "allowed-" + lost}, less, false},
		"applied with allowed fields":  {v1alpha1.SourceObject{Hash: "h", Fields: fields, Drift: "allowed-" + fields}, full, false},
		"as applied again":             {v1alpha1.SourceObject{Hash: "h", Fields: fields, Drift: lost}, full, true},
		"gone":                         {v1alpha1.SourceObject{Hash: "h", Fields: fields}, nil, true},
		"known to be gone":             {v1alpha1.SourceObject{Hash: "h", Fields: fields, Drift: "gone"}, nil, false},
		"of an earlier hub":            {v1alpha1.SourceObject{Hash: "h"}, less, false},
		"not applied yet":              {v1alpha1.SourceObject{Fields: fields}, less, false},
		"no longer in the content":     {v1alpha1.SourceObject{Hash: "h", Fields: fields, Kept: "PruneKeeps"}, nil, false},
		"gone, and known to be edited": {v1alpha1.SourceObject{Hash: "h", Fields: fields, Drift: lost}, nil, true},
	} {
		if got := HasDriftChanged(c.entry, c.live, ownManager); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// Differences are divided into drift and what is allowed: by path, by managers, and by the subresource scale.
func TestFindDrift(t *testing.T) {
	const (
		edited   = `kubectl-edit Update - {"f:spec": {"f:replicas": {}}}`
		scaled   = `kubectl Update scale {"f:spec": {"f:replicas": {}}}`
		setImage = `kubectl-set Update - {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"web"}': {"f:image": {}}}}}}}`
	)
	for name, c := range map[string]struct {
		allow string
		live  *unstructured.Unstructured
		// drift and allowed are paths.
		drift, allowed string
		managers       string
	}{
		"nothing":                           {"", ownedBy(t, "3", "a", ownsBoth), "", "", "[]"},
		"replicas by an edit":               {"", ownedBy(t, "7", "a", ownsImage, edited), "/spec/replicas", "", "[kubectl-edit]"},
		"replicas by scale":                 {"", ownedBy(t, "7", "a", ownsImage, scaled), "", "/spec/replicas", "[]"},
		"replicas without an owner":         {"", ownedBy(t, "0", "a", ownsImage), "", "/spec/replicas", "[]"},
		"an image":                          {"", ownedBy(t, "3", "b", ownManager+` Apply - {"f:spec": {"f:replicas": {}}}`, setImage), "/spec/template/spec/containers/name=web/image", "", "[kubectl-set]"},
		"an image of an allowed manager":    {"{managers: [kubectl-set]}", ownedBy(t, "3", "b", ownsImage, setImage), "", "/spec/template/spec/containers/name=web/image", "[]"},
		"an allowed path":                   {"{paths: [/spec/template/spec]}", ownedBy(t, "7", "b", edited, setImage), "/spec/replicas", "/spec/template/spec/containers/name=web/image", "[kubectl-edit]"},
		"a path that only begins so":        {"{paths: [/spec/rep]}", ownedBy(t, "7", "a", edited), "/spec/replicas", "", "[kubectl-edit]"},
		"an allowed manager":                {"{managers: [kubectl-edit]}", ownedBy(t, "7", "b", edited, setImage), "/spec/template/spec/containers/name=web/image", "/spec/replicas", "[kubectl-set]"},
		"a manager beside another one":      {"{managers: [kubectl-edit]}", ownedBy(t, "7", "a", edited, `other Update - {"f:spec": {"f:replicas": {}}}`), "/spec/replicas", "", "[kubectl-edit other]"},
		"no manager is not an allowed one":  {"{managers: [kubectl-edit]}", ownedBy(t, "3", "b"), "/spec/template/spec/containers/name=web/image", "", "[]"},
		"allowed for another kind":          {"{kind: ConfigMap, paths: [/spec]}", ownedBy(t, "7", "a", edited), "/spec/replicas", "", "[kubectl-edit]"},
		"allowed for another name":          {"{name: db, paths: [/spec]}", ownedBy(t, "7", "a", edited), "/spec/replicas", "", "[kubectl-edit]"},
		"allowed for this very object":      {"{kind: Deployment, name: web, paths: [/spec/]}", ownedBy(t, "7", "a", edited), "", "/spec/replicas", "[]"},
		"status and managers do not count":  {"", ownedBy(t, "3", "a", ownsBoth, `kube Update status {"f:status": {}}`), "", "", "[]"},
		"replicas by scale and by an apply": {"", ownedBy(t, "7", "a", ownsImage, scaled, `argo Apply - {"f:spec": {"f:replicas": {}}}`), "", "/spec/replicas", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			if c.allow != "" {
				s.Spec.Drift = &v1alpha1.SourceDrift{Allow: make([]v1alpha1.AllowedDrift, 1)}
				if err := yaml.UnmarshalStrict([]byte(c.allow), &s.Spec.Drift.Allow[0]); err != nil {
					t.Fatal(err)
				}
			}
			d := FindDrift(s, Key{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, c.live, ownedBy(t, "3", "a", ownsBoth))
			var drift, allowed []string
			for _, f := range d.Fields {
				drift = append(drift, f.Path)
			}
			for _, f := range d.Allowed {
				allowed = append(allowed, f.Path)
			}
			if strings.Join(drift, " ") != c.drift || strings.Join(allowed, " ") != c.allowed || fmt.Sprint(d.Managers) != c.managers || d.IsDrifted() != (c.drift != "") {
				t.Errorf("drift %v, allowed %v, managers %v", drift, allowed, d.Managers)
			}
		})
	}
}

// A correction keeps the values of allowed fields alone, and does not change the form of the content.
func TestKeepAllowed(t *testing.T) {
	form := ownedBy(t, "3", "a")
	d := FindDrift(&v1alpha1.Source{Spec: v1alpha1.SourceSpec{Drift: &v1alpha1.SourceDrift{Allow: []v1alpha1.AllowedDrift{{Paths: []string{"/spec/replicas"}}}}}}, Key{}, ownedBy(t, "7", "b"), form)
	kept := d.KeepAllowed(form)
	replicas, _, _ := unstructured.NestedFieldNoCopy(kept.Object, "spec", "replicas")
	containers, _, _ := unstructured.NestedSlice(kept.Object, "spec", "template", "spec", "containers")
	if fmt.Sprint(replicas) != "7" || containers[0].(map[string]any)["image"] != "a" {
		t.Errorf("kept %v", kept.Object["spec"])
	}
	if before, _, _ := unstructured.NestedFieldNoCopy(form.Object, "spec", "replicas"); fmt.Sprint(before) != "3" {
		t.Errorf("the form has %v replicas now", before)
	}
	entry := v1alpha1.SourceObject{Fields: "f"}
	if d.MarkApplied(&entry); IsDrifted(entry) || entry.Drift == "" {
		t.Errorf("an applied object with allowed fields has the drift %q", entry.Drift)
	}
	if d.MarkEntry(&entry, "other"); !IsDrifted(entry) || CountDrifted([]v1alpha1.SourceObject{entry, {Drift: "allowed-f"}, {}}) != 1 {
		t.Errorf("a drifted object has the drift %q", entry.Drift)
	}
}
