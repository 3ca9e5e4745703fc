package changes

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// parseObject returns an entry of an inventory from KIND/NAME=HASH, with flags behind spaces. The Source created it,
// unless it is adopted.
func parseObject(text string) v1alpha1.SourceObject {
	fields := strings.Fields(text)
	what, hash, _ := strings.Cut(fields[0], "=")
	kind, name, _ := strings.Cut(what, "/")
	o := v1alpha1.SourceObject{APIVersion: "v1", Kind: kind, Namespace: "shop", Name: name, Hash: hash, UID: "u"}
	if kind == "CustomResourceDefinition" {
		o.APIVersion = "apiextensions.k8s.io/v1"
	}
	for _, f := range fields[1:] {
		if f == "adopted" {
			o.UID = ""
		} else {
			o.Kept = f
		}
	}
	return o
}

func parseObjects(text string) (out []v1alpha1.SourceObject) {
	for one := range strings.SplitSeq(text, ", ") {
		if one != "" {
			out = append(out, parseObject(one))
		}
	}
	return out
}

// formatDecision returns a decision as words.
func formatDecision(wanted []v1alpha1.SourceObject, d Decision) string {
	var out []string
	for _, i := range d.Apply {
		out = append(out, "apply "+wanted[i].Name)
	}
	for _, i := range d.Unchanged {
		out = append(out, "same "+wanted[i].Name)
	}
	for _, o := range d.Remove {
		out = append(out, "remove "+o.Name)
	}
	for _, o := range d.Keep {
		out = append(out, "keep "+o.Name+" "+o.Kept)
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		wanted, inventory string
		change            func(*Input)
		want              string
	}{
		"new":                           {"A/a=1", "", nil, "apply a"},
		"unchanged":                     {"A/a=1", "A/a=1", nil, "same a"},
		"changed":                       {"A/a=2", "A/a=1", nil, "apply a"},
		"dropped":                       {"A/a=1", "A/a=1, A/b=1", nil, "same a, remove b"},
		"another kind of the same name": {"A/a=1", "B/a=1", nil, "apply a, remove a"},
		"dropped under prune: Keep":     {"A/a=1", "A/a=1, A/b=1", func(in *Input) { in.Prune = v1alpha1.PruneKeep }, "same a, keep b PruneKeeps"},
		"dropped by the settings":       {"A/a=1", "A/a=1, A/b=1", func(in *Input) { in.SameSettings = false }, "same a, keep b SettingsChanged"},
		"dropped, and existed before":   {"A/a=1", "A/a=1, A/b=1 adopted", nil, "same a, keep b Adopted"},
		"a dropped namespace":           {"A/a=1", "A/a=1, Namespace/b=1", nil, "same a, keep b HoldsOthers"},
		"a dropped CRD":                 {"A/a=1", "A/a=1, CustomResourceDefinition/b=1", nil, "same a, keep b HoldsOthers"},
		"kept before, by settings":      {"A/a=1", "A/a=1, A/b=1 SettingsChanged", nil, "same a, keep b SettingsChanged"},
		"kept before, and back":         {"A/a=1, A/b=1", "A/a=1, A/b=1 SettingsChanged", nil, "apply b, same a"},
		"everything again":              {"A/a=1", "A/a=1", func(in *Input) { in.ApplyAll = true }, "apply a"},
	} {
		in := Input{Source: &v1alpha1.Source{}, Wanted: parseObjects(c.wanted), Inventory: parseObjects(c.inventory), SameSettings: true, Prune: v1alpha1.PruneRemove}
		if c.change != nil {
			c.change(&in)
		}
		if got := formatDecision(in.Wanted, Decide(in)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAnotherVersionOfAnAPIIsTheSameObject(t *testing.T) {
	in := Input{Source: &v1alpha1.Source{}, Wanted: parseObjects("A/a=1"), Inventory: parseObjects("A/a=1"), SameSettings: true}
	in.Wanted[0].APIVersion, in.Inventory[0].APIVersion = "x.dev/v2", "x.dev/v1"
	if got := formatDecision(in.Wanted, Decide(in)); got != "same a" {
		t.Error(got)
	}
	if k := KeyOf(v1alpha1.SourceObject{APIVersion: "a/b/c", Kind: "A"}); k.Group != "a/b/c" {
		t.Error(k)
	}
}

func TestRewrittenHistoryRemovesNothing(t *testing.T) {
	in := Input{Source: &v1alpha1.Source{}, Wanted: parseObjects("A/a=1"), Inventory: parseObjects("A/a=1, A/b=1"), SameSettings: true}
	d := Decide(in)
	d.KeepAll(atoll.ReasonHistoryRewritten)
	if got := formatDecision(in.Wanted, d); got != "same a, keep b HistoryRewritten" {
		t.Error(got)
	}
}

func TestWhatOthersNeedIsAppliedFirst(t *testing.T) {
	wanted := parseObjects("ConfigMap/a=1, PropagationPolicy/p=1, CustomResourceDefinition/c=1, Namespace/n=1, ConfigMap/b=1")
	wanted[1].APIVersion = "atoll.dev/v1alpha1"
	indexes := []int{0, 1, 2, 3, 4}
	SortForApply(wanted, indexes)
	if want := []int{3, 2, 1, 0, 4}; !slices.Equal(indexes, want) {
		t.Errorf("%v, want %v", indexes, want)
	}
}

func TestHistories(t *testing.T) {
	for name, c := range map[string]struct {
		h                History
		ancestors        string
		unknown, mayWait bool
	}{
		"a new commit":                           {History{"c1", "c1", "c2"}, "c1", false, true},
		"the applied commit":                     {History{"c1", "c1", "c1"}, "", false, true},
		"an attempt goes on":                     {History{"c1", "c2", "c2"}, "c1", false, true},
		"back to the applied one after a try":    {History{"c1", "c2", "c1"}, "c2", false, false},
		"a third one after a try":                {History{"c1", "c2", "c3"}, "c1 c2", false, false},
		"nothing is applied in whole":            {History{"", "c1", "c2"}, "c1", false, false},
		"no attempt is recorded, of another hub": {History{"c1", "", "c2"}, "c1", true, false},
		"the first attempt is tried once more":   {History{"", "c1", "c1"}, "", false, true},
	} {
		if got := strings.Join(c.h.Ancestors(), " "); got != c.ancestors || c.h.IsUnknown() != c.unknown || c.h.MayWait() != c.mayWait {
			t.Errorf("%s: %q, unknown %v, may wait %v", name, got, c.h.IsUnknown(), c.h.MayWait())
		}
	}
}

func TestInterruptions(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		change func(s *v1alpha1.Source, r *v1alpha1.Repository)
		want   atoll.Reason
	}{
		"nothing":                         {func(*v1alpha1.Source, *v1alpha1.Repository) {}, ""},
		"statuses":                        {func(s *v1alpha1.Source, r *v1alpha1.Repository) { s.ResourceVersion, r.ResourceVersion = "2", "2" }, ""},
		"the Source is another one":       {func(s *v1alpha1.Source, _ *v1alpha1.Repository) { s.UID = "other" }, atoll.ReasonSettingsChanged},
		"the Source is being deleted":     {func(s *v1alpha1.Source, _ *v1alpha1.Repository) { s.DeletionTimestamp = &now }, atoll.ReasonSettingsChanged},
		"the Source is suspended":         {func(s *v1alpha1.Source, _ *v1alpha1.Repository) { s.Spec.Suspend, s.Generation = true, 2 }, atoll.ReasonSuspended},
		"the Source changed":              {func(s *v1alpha1.Source, _ *v1alpha1.Repository) { s.Generation = 2 }, atoll.ReasonSettingsChanged},
		"the Repository is another one":   {func(_ *v1alpha1.Source, r *v1alpha1.Repository) { r.UID = "other" }, atoll.ReasonRepositoryMissing},
		"the Repository is being deleted": {func(_ *v1alpha1.Source, r *v1alpha1.Repository) { r.DeletionTimestamp = &now }, atoll.ReasonRepositoryMissing},
		"the Repository is suspended":     {func(_ *v1alpha1.Source, r *v1alpha1.Repository) { r.Spec.Suspend, r.Generation = true, 2 }, atoll.ReasonSuspended},
		"another commit was tried":        {func(s *v1alpha1.Source, _ *v1alpha1.Repository) { s.Status.AttemptedCommit = "c2" }, atoll.ReasonSettingsChanged},
		"other settings were tried":       {func(s *v1alpha1.Source, _ *v1alpha1.Repository) { s.Status.Settings = "s2" }, atoll.ReasonSettingsChanged},
		"the Repository changed":          {func(_ *v1alpha1.Source, r *v1alpha1.Repository) { r.Generation = 2 }, atoll.ReasonSettingsChanged},
	} {
		s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{UID: "s", Generation: 1, ResourceVersion: "1"}}
		r := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{UID: "r", Generation: 1, ResourceVersion: "1"}}
		sourceNow, repoNow := s.DeepCopy(), r.DeepCopy()
		c.change(sourceNow, repoNow)
		why, message := FindInterruption(s, sourceNow, r, repoNow)
		if why != c.want || (message == "") != (why == "") {
			t.Errorf("%s: %s, %s", name, why, message)
		}
		if why, _ := FindInterruption(s, nil, r, r); why != atoll.ReasonSettingsChanged {
			t.Errorf("no Source: %s", why)
		}
		if why, _ := FindInterruption(s, s, r, nil); why != atoll.ReasonRepositoryMissing {
			t.Errorf("no Repository: %s", why)
		}
	}
}

// objectOf returns what the API has of an object; UID and managers.
func objectOf(uid types.UID, managers ...string) *metav1.ObjectMeta {
	o := &metav1.ObjectMeta{UID: uid, Labels: map[string]string{v1alpha1.LabelSource: "web"}}
	for _, m := range managers {
		o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: m})
	}
	return o
}

func TestObjectsThatASourceCreated(t *testing.T) {
	for name, c := range map[string]struct {
		recorded      types.UID
		before, after *metav1.ObjectMeta
		want          types.UID
	}{
		"it did not exist":                     {"", nil, objectOf("u", "me"), "u"},
		"it was gone, and is made again":       {"v", nil, objectOf("u", "me"), "u"},
		"it did not exist, and others made it": {"", nil, objectOf("u", "me", "kubectl"), ""},
		"it existed":                           {"", objectOf("u", "kubectl"), objectOf("u", "kubectl", "me"), ""},
		"it existed, and is by the same name":  {"", objectOf("u", "me"), objectOf("u", "me"), ""},
		"the Source created it":                {"u", objectOf("u", "me"), objectOf("u", "me"), "u"},
		"others made it again":                 {"v", objectOf("u", "kubectl"), objectOf("u", "kubectl", "me"), ""},
		"others made it again in between":      {"v", objectOf("v", "me"), objectOf("u", "me"), ""},
	} {
		var before metav1.Object
		if c.before != nil {
			before = c.before
		}
		if got := CreatedUID(c.recorded, before, c.after, "me"); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestOwnersOfDroppedObjects(t *testing.T) {
	created := v1alpha1.SourceObject{UID: "u"}
	unlabelled, relabelled := objectOf("u", "me"), objectOf("u", "me")
	unlabelled.Labels, relabelled.Labels[v1alpha1.LabelSource] = nil, "other"
	helmKeeps, helmKeepsToo := objectOf("u", "me"), objectOf("u", "me")
	helmKeeps.Annotations = map[string]string{"helm.sh/resource-policy": "keep"}
	helmKeepsToo.Annotations = map[string]string{"helm.sh/resource-policy": " Keep "}
	for name, c := range map[string]struct {
		entry    v1alpha1.SourceObject
		existing *metav1.ObjectMeta
		want     atoll.Reason
	}{
		"created":           {created, objectOf("u", "kubectl", "me"), ""},
		"kept by Helm":      {created, helmKeeps, atoll.ReasonPolicyKeeps},
		"kept, in capitals": {created, helmKeepsToo, atoll.ReasonPolicyKeeps},
		"made again":        {created, objectOf("v", "me"), atoll.ReasonOwnedElsewhere},
		"not created":       {v1alpha1.SourceObject{}, objectOf("", "me"), atoll.ReasonOwnedElsewhere},
		"not applied":       {created, objectOf("u", "kubectl"), atoll.ReasonOwnedElsewhere},
		"without a label":   {created, unlabelled, atoll.ReasonOwnedElsewhere},
		"of another label":  {created, relabelled, atoll.ReasonOwnedElsewhere},
	} {
		if got := FindOwner(c.entry, c.existing, "web", "me"); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The bound of an inventory is above what the API makes of it.
func TestInventoryBytes(t *testing.T) {
	o := v1alpha1.SourceObject{
		APIVersion: "a.example.com/v1", Kind: "ConfigMap", Namespace: strings.Repeat("n", 63), Name: strings.Repeat("m", 253),
		Hash: strings.Repeat("h", 16), UID: "01234567-0123-0123-0123-0123456789ab", Kept: string(atoll.ReasonHistoryRewritten),
		Fields: strings.Repeat("f", 16), Drift: allowedPrefix + strings.Repeat("f", 16),
	}
	raw, err := json.Marshal([]v1alpha1.SourceObject{o, o})
	if err != nil {
		t.Fatal(err)
	}
	if got := inventoryBytes([]v1alpha1.SourceObject{o, o}); got < len(raw) || got > len(raw)+200 {
		t.Errorf("%d bytes count as %d", len(raw), got)
	}
}

// Every object of the inventory and of the content is in exactly one part of the decision.
func TestNothingIsLost(t *testing.T) {
	for n := range 1 << 8 {
		in := Input{Source: &v1alpha1.Source{}, SameSettings: n&1 == 0, ApplyAll: n&2 == 0, Prune: v1alpha1.PruneRemove}
		for i := range 3 {
			o := parseObject(fmt.Sprintf("A/%d=1", i))
			if n&(4<<i) == 0 {
				in.Wanted = append(in.Wanted, o)
			}
			if n&(32<<i) == 0 {
				in.Inventory = append(in.Inventory, o)
			}
		}
		d := Decide(in)
		all := map[string]int{}
		for _, i := range slices.Concat(d.Apply, d.Unchanged) {
			all[in.Wanted[i].Name]++
		}
		for _, o := range slices.Concat(d.Remove, d.Keep) {
			all[o.Name]++
		}
		for _, o := range slices.Concat(in.Wanted, in.Inventory) {
			if all[o.Name] != 1 {
				t.Errorf("case %d: %s is in %d parts", n, o.Name, all[o.Name])
			}
		}
	}
}

// A Source states what is read of a commit, and how objects are made of it.
func TestWantOfASource(t *testing.T) {
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	s.Spec.Paths, s.Spec.Exclude = []string{"deploy"}, []string{"x"}
	want := render.Want{Paths: []string{"deploy"}, Exclude: []string{"x"}, Options: render.Options{ReleaseName: "web", Namespace: "shop"}}
	if got := NewWant(s); !reflect.DeepEqual(got, want) {
		t.Errorf("without a build: %+v", got)
	}
	s.Spec.TargetNamespace = "other"
	s.Spec.Build = &v1alpha1.SourceBuild{Type: v1alpha1.BuildHelm, Helm: &v1alpha1.HelmBuild{
		ReleaseName: "one", ValuesFiles: []string{"prod.yaml"}, Values: &apiextensionsv1.JSON{Raw: []byte(`{"a":1}`)}, KubeVersion: "1.34", APIVersions: []string{"a/v1"}, Hooks: v1alpha1.HooksOmit,
	}}
	want.Options = render.Options{Type: render.Helm, ReleaseName: "one", Namespace: "other", Helm: &render.HelmOptions{
		ValuesFiles: []string{"prod.yaml"}, Values: []byte(`{"a":1}`), KubeVersion: "1.34", APIVersions: []string{"a/v1"}, OmitHooks: true,
	}}
	if got := NewWant(s); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for hooks, options := range map[v1alpha1.HelmHooks]render.HelmOptions{v1alpha1.HooksRun: {}, v1alpha1.HooksRefuse: {RefuseHooks: true}} {
		s.Spec.Build.Helm = &v1alpha1.HelmBuild{Hooks: hooks}
		if got := NewWant(s).Options.Helm; !reflect.DeepEqual(*got, options) {
			t.Errorf("%s: %+v", hooks, got)
		}
	}
}

// Variants take the settings of the build along, and excluded ones read nothing.
func TestWantOfVariants(t *testing.T) {
	raw := func(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	s.Spec.Variants = []v1alpha1.SourceVariant{
		{Name: "off", Exclude: true}, {Name: "path", Paths: []string{"b"}}, {Name: "values", Helm: &v1alpha1.VariantValues{ValuesFiles: []string{"p.yaml"}, Values: raw(`{"a":2}`)}, Patches: []apiextensionsv1.JSON{*raw(`{"b":3}`)}},
	}
	w := NewWant(s)
	own := render.Options{ReleaseName: "web", Namespace: "shop"}
	values := own
	values.Helm = &render.HelmOptions{VariantFiles: []string{"p.yaml"}, VariantValues: []byte(`{"a":2}`)}
	want := []render.Variant{{Name: "path", Paths: []string{"b"}, Options: own}, {Name: "values", Options: values, Patches: []json.RawMessage{[]byte(`{"b":3}`)}}}
	if !reflect.DeepEqual(w.Variants, want) {
		t.Errorf("%+v", w.Variants)
	}
	s.Spec.Build = &v1alpha1.SourceBuild{Helm: &v1alpha1.HelmBuild{Values: raw(`{"a":1}`)}}
	w = NewWant(s)
	want[0].Options.Helm, want[1].Options.Helm.Values = &render.HelmOptions{Values: []byte(`{"a":1}`), MayBeUnused: true}, []byte(`{"a":1}`)
	if !reflect.DeepEqual(w.Variants, want) || w.Options.Helm.MayBeUnused || w.Options.Helm.VariantFiles != nil {
		t.Errorf("%+v", w)
	}
}

// The settings have what decides which objects variants have, and no target. They are as before without variants.
func TestSettingsHaveVariants(t *testing.T) {
	s := &v1alpha1.Source{}
	digest := func() string { return DigestSettings(s, "u", render.Result{}, "") }
	none := digest()
	s.Spec.Variants = []v1alpha1.SourceVariant{{Name: "a", Paths: []string{"b"}}}
	path := digest()
	s.Spec.Variants[0].Name, s.Spec.Variants[0].TargetCluster.ClusterSets = "b", []string{"c"}
	if path == none || digest() != path {
		t.Error("a path is not of the settings, or a target is")
	}
	for _, change := range []func(*v1alpha1.SourceVariant){
		func(v *v1alpha1.SourceVariant) { v.Exclude = true }, func(v *v1alpha1.SourceVariant) { v.Helm = &v1alpha1.VariantValues{} }, func(v *v1alpha1.SourceVariant) { v.Patches = make([]apiextensionsv1.JSON, 1) },
	} {
		s.Spec.Variants[0] = v1alpha1.SourceVariant{Paths: []string{"b"}}
		if change(&s.Spec.Variants[0]); digest() == path {
			t.Errorf("%+v", s.Spec.Variants[0])
		}
	}
}
