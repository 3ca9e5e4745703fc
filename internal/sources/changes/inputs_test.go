package changes

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// newReader returns a Source that names values, as KIND/NAME/KEY with a question mark for an optional one.
func newReader(references ...string) *v1alpha1.Source {
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	helm := &v1alpha1.HelmBuild{}
	for _, one := range references {
		text, optional := strings.CutSuffix(one, "?")
		parts := strings.Split(text, "/")
		helm.ValuesFrom = append(helm.ValuesFrom, v1alpha1.ValuesReference{Kind: v1alpha1.ValuesKind(parts[0]), Name: parts[1], Key: parts[2], Optional: optional})
	}
	s.Spec.Build = &v1alpha1.SourceBuild{Helm: helm}
	return s
}

func TestCollectInputs(t *testing.T) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	objects := map[string]map[string]any{
		"ConfigMap/a": {"data": map[string]any{"values.yaml": "a: 1", "other": "b: 1"}, "binaryData": map[string]any{"binary": encode("c: 1")}},
		"Secret/s":    {"data": map[string]any{"values.yaml": encode("s: 1"), "malformed": "%"}},
		"Secret/half": {"data": map[string]any{"k": encode(strings.Repeat("x", render.MaxInputBytes/2+1))}},
		"Secret/rest": {"data": map[string]any{"k": encode(strings.Repeat("x", render.MaxInputBytes/2))}},
		"Secret/none": {},
	}
	away := errors.New("away")
	find := func(r v1alpha1.ValuesReference) (*unstructured.Unstructured, error) {
		if r.Name == "away" {
			return nil, away
		}
		if o, has := objects[string(r.Kind)+"/"+r.Name]; has {
			return &unstructured.Unstructured{Object: o}, nil
		}
		return nil, nil
	}
	for name, c := range map[string]struct {
		references []string
		want       map[string]string
		reason     atoll.Reason
		message    string
	}{
		"none":                  {nil, nil, "", ""},
		"the default key":       {[]string{"ConfigMap/a/", "Secret/s/"}, map[string]string{"ConfigMap/a/values.yaml": "a: 1", "Secret/s/values.yaml": "s: 1"}, "", ""},
		"other keys":            {[]string{"ConfigMap/a/other", "ConfigMap/a/binary"}, map[string]string{"ConfigMap/a/other": "b: 1", "ConfigMap/a/binary": "c: 1"}, "", ""},
		"one twice":             {[]string{"ConfigMap/a/", "ConfigMap/a/values.yaml"}, map[string]string{"ConfigMap/a/values.yaml": "a: 1"}, "", ""},
		"a missing object":      {[]string{"ConfigMap/s/"}, nil, atoll.ReasonValuesMissing, "the ConfigMap s, which valuesFrom names, does not exist in the namespace shop"},
		"a missing key":         {[]string{"Secret/s/other"}, nil, atoll.ReasonValuesMissing, "the Secret s in the namespace shop has no key other"},
		"a key of no form":      {[]string{"Secret/s/malformed"}, nil, atoll.ReasonValuesMissing, "has no key malformed"},
		"no data":               {[]string{"Secret/none/k"}, nil, atoll.ReasonValuesMissing, "has no key k"},
		"optional ones":         {[]string{"ConfigMap/x/?", "Secret/s/other?", "ConfigMap/a/?"}, map[string]string{"ConfigMap/a/values.yaml": "a: 1"}, "", ""},
		"optional, then needed": {[]string{"ConfigMap/x/?", "ConfigMap/x/"}, nil, atoll.ReasonValuesMissing, "the ConfigMap x"},
		"the bound":             {[]string{"Secret/half/k"}, map[string]string{"Secret/half/k": strings.Repeat("x", render.MaxInputBytes/2+1)}, "", ""},
		"more than the bound":   {[]string{"Secret/half/k", "Secret/rest/k"}, nil, atoll.ReasonValuesTooLarge, "counted up to Secret rest, key k"},
		"more, and optional":    {[]string{"Secret/half/k?", "Secret/rest/k?"}, nil, atoll.ReasonValuesTooLarge, ""},
	} {
		got, err := CollectInputs(newReader(c.references...), find)
		var failure *render.Failure
		if errors.As(err, &failure) != (c.reason != "") || failure != nil && (failure.Reason != c.reason || !strings.Contains(failure.Message, c.message)) || failure == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", name, got)
		}
		for id, text := range c.want {
			if string(got[render.InputID(id)]) != text {
				t.Errorf("%s: %s is %q", name, id, got[render.InputID(id)])
			}
		}
	}
	if _, err := CollectInputs(newReader("Secret/away/"), find); !errors.Is(err, away) {
		t.Errorf("an error of the hub: %v", err)
	}
}

// Variants that are read name values, too, and excluded ones do not. A Want has them in their order.
func TestReferencesOfVariants(t *testing.T) {
	s := newReader("Secret/s/a", "ConfigMap/a/")
	own := &v1alpha1.VariantValues{ValuesFrom: []v1alpha1.ValuesReference{{Kind: "ConfigMap", Name: "b", Key: "k", Optional: true}}}
	s.Spec.Variants = []v1alpha1.SourceVariant{{Name: "on", Helm: own}, {Name: "off", Exclude: true, Helm: &v1alpha1.VariantValues{ValuesFrom: []v1alpha1.ValuesReference{{Kind: "ConfigMap", Name: "c"}}}}}
	var names []string
	for _, r := range ListReferences(s) {
		key := KeyOfReference(s, r)
		names = append(names, key.Kind+" "+key.Namespace+"/"+key.Name+" "+ResourceOfReference(r).Resource)
	}
	if got := strings.Join(names, ", "); got != "Secret shop/s secrets, ConfigMap shop/a configmaps, ConfigMap shop/b configmaps" || !ReadsSecrets(s) {
		t.Error(got)
	}
	w := NewWant(s)
	if got := w.Options.Helm.ValuesFrom; len(got) != 2 || got[0] != "Secret/s/a" || got[1] != "ConfigMap/a/values.yaml" {
		t.Errorf("%v", got)
	}
	if got := w.Variants[0].Options.Helm; len(got.ValuesFrom) != 2 || len(got.VariantFrom) != 1 || got.VariantFrom[0] != "ConfigMap/b/k" {
		t.Errorf("%+v", got)
	}
	find := func(r v1alpha1.ValuesReference) (*unstructured.Unstructured, error) {
		if r.Name == "b" {
			return nil, nil
		}
		return &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": "", "values.yaml": ""}}}, nil
	}
	if in, err := CollectInputs(s, find); err != nil || len(in) != 2 {
		t.Errorf("an optional one of a variant: %v, %v", in, err)
	}
	own.ValuesFrom[0].Optional = false
	if _, err := CollectInputs(s, find); err == nil {
		t.Error("one of a variant that is needed is not missed")
	}
	s.Spec.Build = nil
	if ReadsSecrets(s) || len(ListReferences(s)) != 1 {
		t.Error("a Source without a build")
	}
}

// Other inputs are other settings, so that an edit of a ConfigMap removes no object. Without inputs the settings are as before.
func TestSettingsHaveInputs(t *testing.T) {
	s := newReader("ConfigMap/a/")
	one, two, none := DigestSettings(s, "u", render.Result{}, "1"), DigestSettings(s, "u", render.Result{}, "2"), DigestSettings(s, "u", render.Result{}, "")
	if one == two || one == none {
		t.Error(one, two, none)
	}
}
