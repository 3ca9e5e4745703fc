package changes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// Templates are the objects that a Source wants on the hub. The slices have one entry each: first the objects of the content,
// then the policies that the Source makes.
type Templates struct {
	// Keys are the objects as an inventory has them, without UIDs.
	Keys    []v1alpha1.SourceObject
	Objects []*unstructured.Unstructured
	// Places are the files and lines of the objects. The policies of the Source have none.
	Places []render.Problem
	// Resources are where the hub's API serves the objects; empty for a kind that it does not serve.
	Resources []schema.GroupVersionResource
	// Generated are the fields of the objects that each rendering makes by itself.
	Generated [][]string
	// templates are the objects of the content, with their variants.
	templates []template
	// objects are the indexes of objects, by those of the policies of their variants.
	objects map[int]int
}

// FindObject returns the index of the object of which a policy makes variants; false for what is no such policy.
func (t *Templates) FindObject(policy int) (int, bool) {
	i, ok := t.objects[policy]
	return i, ok
}

// CountContent returns the number of objects of the content, without the policies that the Source makes.
func (t *Templates) CountContent() int { return len(t.templates) }

// IsOverridePolicy reports whether an object is a policy that the Source makes of its variants.
func (t *Templates) IsOverridePolicy(s *v1alpha1.Source, i int) bool {
	return i >= len(t.templates) && IsOverridePolicy(s.Name, t.Keys[i])
}

// ServedKind is where an API serves a kind.
type ServedKind struct {
	Resource     schema.GroupVersionResource
	IsNamespaced bool
}

// FindKind returns where the hub's API serves a kind; false for a kind that it does not serve.
type FindKind func(schema.GroupVersionKind) (ServedKind, bool)

// NewTemplates completes the objects of a commit, and adds the policies that place them and make their variants. It changes the
// objects. commit is empty for content that is not committed yet.
func NewTemplates(s *v1alpha1.Source, content render.Result, commit string, find FindKind) (t Templates, problems []render.Problem) {
	c := completer{source: s, find: find, at: map[Key]int{}}
	c.addContent(content)
	problems = c.problems
	for i := range c.templates {
		one := &c.templates[i]
		on := one.hubForm()
		t.add(&unstructured.Unstructured{Object: on.fields}, c.resources[i], on)
		if p := one.checkVariants(s); p != nil {
			problems = append(problems, *p)
		}
	}
	t.templates = c.templates
	own := t.newPolicies(s)
	for _, policy := range own {
		if i, has := c.at[PolicyKey(policy)]; has {
			at := c.templates[i].hubForm().at
			at.Message = "the Source itself makes " + policy.GetKind() + " " + policy.GetName() + " of its placement or its variants; give the policy of the file another name"
			problems = append(problems, at)
		}
	}
	if len(problems) > 0 {
		return t, problems[:min(len(problems), render.MaxProblems)]
	}
	for _, policy := range own {
		resource := v1alpha1.GroupVersion.WithResource("propagationpolicies")
		if policy.GetKind() != "PropagationPolicy" {
			resource = overrideResource(policy.GetKind())
		}
		t.add(policy, resource, form{})
	}
	t.nameCommit(s, commit)
	return t, nil
}

// newPolicies returns the policies that the Source makes.
func (t *Templates) newPolicies(s *v1alpha1.Source) (out []*unstructured.Unstructured) {
	if policy := newPolicy(s, t.Keys); policy != nil {
		out = append(out, policy)
	}
	for i := range t.templates {
		if rules := t.templates[i].newRules(s, "", newMergePatch); len(rules) > 0 {
			out = append(out, t.templates[i].newOverridePolicy(s, rules))
		}
	}
	return out
}

// nameCommit adds the commit to the policies of variants, and notes their objects. The commit is none of what their hashes are of: a policy names the commit
// that changed it last.
func (t *Templates) nameCommit(s *v1alpha1.Source, commit string) {
	at := make(map[Key]int, len(t.Keys))
	for i := len(t.templates); i < len(t.Keys); i++ {
		at[KeyOf(t.Keys[i])] = i
	}
	t.objects = map[int]int{}
	for i := range t.templates {
		rules := t.templates[i].newRules(s, commit, newMergePatch)
		if len(rules) == 0 {
			continue
		}
		policy := t.templates[i].newOverridePolicy(s, rules)
		n := at[PolicyKey(policy)]
		t.Objects[n], t.objects[n] = policy, i
	}
}

// completer completes the objects of a content and of its variants.
type completer struct {
	source    *v1alpha1.Source
	find      FindKind
	templates []template
	resources []schema.GroupVersionResource
	// at is the index of an object.
	at       map[Key]int
	problems []render.Problem
}

// addContent adds the objects of the content, and then those of its variants.
func (c *completer) addContent(content render.Result) {
	for _, o := range content.Objects {
		u, resource := c.completeObject(o)
		at := render.Problem{File: o.File, Line: o.Line}
		i, isNew := c.ensureTemplate(u, resource)
		if !isNew {
			c.reportTwice("", at, c.templates[i].key, c.templates[i].base.at)
			continue
		}
		c.templates[i].base = form{u.Object, at, o.Generated}
	}
	common := len(c.templates)
	for n, v := range c.source.Spec.Variants {
		i := slices.IndexFunc(content.Variants, func(r render.VariantResult) bool { return r.Name == v.Name })
		if i < 0 || len(c.problems) > 0 {
			continue // excluded
		}
		for j := range common {
			if !slices.Contains(content.Variants[i].Absent, j) {
				c.templates[j].variants[n] = c.templates[j].base
			}
		}
		c.addVariant(n, v.Name, content.Variants[i].Objects)
	}
}

// addVariant adds the objects that are other ones in a variant.
func (c *completer) addVariant(n int, name string, objects []render.Object) {
	for _, o := range objects {
		u, resource := c.completeObject(render.Object{Fields: runtime.DeepCopyJSON(o.Fields), File: o.File, Line: o.Line})
		at := render.Problem{File: o.File, Line: o.Line}
		i, _ := c.ensureTemplate(u, resource)
		one := &c.templates[i].variants[n]
		if one.fields != nil {
			c.reportTwice("variant "+name+": ", at, c.templates[i].key, one.at)
		}
		*one = form{u.Object, at, o.Generated}
	}
}

func (c *completer) reportTwice(prefix string, at render.Problem, k Key, before render.Problem) {
	at.Message = fmt.Sprintf("%s%s %s is in %s:%d, too", prefix, k.Kind, k.Name, before.File, before.Line)
	c.problems = append(c.problems, at)
}

// ensureTemplate returns the index of the template of an object, and whether it is a new one.
func (c *completer) ensureTemplate(u *unstructured.Unstructured, resource schema.GroupVersionResource) (int, bool) {
	k := Key{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}
	if i, has := c.at[k]; has {
		return i, false
	}
	c.at[k] = len(c.templates)
	c.templates = append(c.templates, template{key: k, variants: make([]form, len(c.source.Spec.Variants))})
	c.resources = append(c.resources, resource)
	return c.at[k], true
}

// completeObject sets the namespace and the label of an object.
func (c *completer) completeObject(o render.Object) (*unstructured.Unstructured, schema.GroupVersionResource) {
	u := &unstructured.Unstructured{Object: o.Fields}
	kind, served := c.find(u.GroupVersionKind())
	switch {
	case served && !kind.IsNamespaced:
		u.SetNamespace("")
	case served && u.GetNamespace() == "":
		u.SetNamespace(cmp.Or(c.source.Spec.TargetNamespace, c.source.Namespace))
	}
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelSource] = c.source.Name
	u.SetLabels(labels)
	return u, kind.Resource
}

// add adds an object, of a form of the content. Its hash is of everything that is applied, but for values that differ between renderings.
func (t *Templates) add(u *unstructured.Unstructured, resource schema.GroupVersionResource, of form) {
	raw, err := json.Marshal(withoutGenerated(u.Object, of.generated))
	if err != nil {
		panic(fmt.Sprintf("changes: an object of decoded JSON cannot be encoded: %v", err))
	}
	// The paths are of the hash, so that a commit that drops such a field is another object.
	sum := sha256.Sum256(append(raw, strings.Join(of.generated, "\n")...))
	t.Keys = append(t.Keys, v1alpha1.SourceObject{
		APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Hash: hex.EncodeToString(sum[:8]),
	})
	t.Objects, t.Places, t.Resources = append(t.Objects, u), append(t.Places, of.at), append(t.Resources, resource)
	t.Generated = append(t.Generated, of.generated)
}

// sourceManagerPrefix begins the field managers of Sources.
const sourceManagerPrefix = "atoll-source:"

// FieldManagerOf returns the field manager of a Source.
func FieldManagerOf(s *v1alpha1.Source) string {
	name := sourceManagerPrefix + s.Namespace + "/" + s.Name
	if len(name) > 128 {
		name = name[:100] + atoll.HashParts([]byte(name))[:20]
	}
	return name
}

// DigestSettings returns a digest of what of a Source decides which objects there are. The types of its paths are of it, and
// so are the program that rendered them and the digest of the inputs: another type, a new version of the hub and an edit of a
// ConfigMap remove nothing.
func DigestSettings(s *v1alpha1.Source, url string, content render.Result, inputs string) string {
	builds, ref := content.Builds, s.Spec.Ref
	if ref.Version != "" {
		ref.Version = "*" // it is the revision: a later version removes what it drops, as a later commit of a branch does
	}
	settings := []any{url, ref, s.Spec.Paths, s.Spec.Exclude, s.Spec.TargetNamespace, s.Spec.Placement == nil && s.Spec.PlacementRef == nil}
	if s.Spec.Build != nil || len(builds) > 0 {
		settings = append(settings, s.Spec.Build, content.Program)
	}
	for _, b := range builds {
		settings = append(settings, b.Dir, b.Type)
	}
	for _, v := range s.Spec.Variants {
		settings = append(settings, v.Exclude, v.Paths, v.Helm, v.Patches)
	}
	if inputs != "" {
		settings = append(settings, "inputs", inputs)
	}
	raw, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("changes: settings cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
