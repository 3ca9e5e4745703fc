package changes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/userfields"
)

// form is an object as one variant, or the content without a variant, has it.
type form struct {
	// fields of the object; nil: the variant has not got it.
	fields map[string]any
	at     render.Problem
	// generated are the fields that each rendering makes by itself.
	generated []string
}

// template is an object on the hub, and what each variant has of it.
type template struct {
	key  Key
	base form
	// variants are those of the Source, in their order.
	variants []form
}

// hubForm returns the form that the hub has: that without a variant, or of the first variant that has the object.
func (t *template) hubForm() form {
	if t.base.fields != nil {
		return t.base
	}
	return t.variants[slices.IndexFunc(t.variants, func(f form) bool { return f.fields != nil })]
}

// isSentToClusters reports whether a variant can have an object of the kind of its own. Namespaces travel with what is in them,
// and objects of the hub's own kinds stay on the hub.
func (t *template) isSentToClusters() bool {
	gk := schema.GroupKind{Group: t.key.Group, Kind: t.key.Kind}
	return !atoll.IsHubOwnedKind(gk) && gk != (schema.GroupKind{Kind: "Namespace"})
}

// checkVariants returns why a variant cannot be had by overrides; nil when it can.
func (t *template) checkVariants(s *v1alpha1.Source) *render.Problem {
	on := t.hubForm()
	for i, f := range t.variants {
		if f.fields == nil {
			continue
		}
		why := findFixedDifference(on.fields, f.fields)
		if why == "" && !t.isSentToClusters() && len(newMergePatch(on.fields, f.fields)) > 0 {
			why = "it differs from the content without a variant, and stays on the hub or travels with what is in it, so that it is the same for all clusters"
		}
		if why == "" && t.key.ItemKey().IsSecret() && overrides.ChangesSecretData(v1alpha1.Overriders{MergePatch: encodePatch(newMergePatch(on.fields, f.fields))}) {
			why = "its data differs by cluster, and policies have more readers than Secrets; give the Secret of the variant another name"
		}
		if why != "" {
			return &render.Problem{File: f.at.File, Line: f.at.Line, Message: fmt.Sprintf("variant %s: %s %s: %s", s.Spec.Variants[i].Name, t.key.Kind, t.key.Name, why)}
		}
	}
	return nil
}

// newRules returns the override rules that make what each cluster gets of the object of what the hub has; none when all clusters
// get the same. patch returns the patch of a variant.
func (t *template) newRules(s *v1alpha1.Source, commit string, patch func(on, of map[string]any) map[string]any) (out []v1alpha1.RuleWithCluster) {
	if !t.isSentToClusters() {
		return nil
	}
	on, needed := t.hubForm(), 0
	for i, f := range t.variants {
		v := &s.Spec.Variants[i]
		r := v1alpha1.RuleWithCluster{TargetCluster: v.TargetCluster.DeepCopy(), Description: describeVariant(s, v.Name, f, commit)}
		if f.fields == nil {
			r.Overriders.NotHere = new(true)
		} else if p := patch(on.fields, f.fields); len(p) > 0 {
			r.Overriders.MergePatch = encodePatch(p)
		}
		if out = append(out, r); r.Overriders.NotHere != nil || r.Overriders.MergePatch != nil {
			needed = len(out)
		}
	}
	if t.base.fields == nil {
		r := v1alpha1.RuleWithCluster{Description: describeVariant(s, "", t.base, commit)}
		r.Overriders.NotHere = new(true)
		return append(out, r)
	}
	return out[:needed] // a rule that changes nothing keeps later ones out, and there are none
}

// describeVariant returns where the form of an object comes from.
func describeVariant(s *v1alpha1.Source, variant string, f form, commit string) string {
	text := "Source " + s.Name + " without a variant"
	if variant != "" {
		text = "variant " + variant + " of Source " + s.Name
	}
	if f.fields == nil {
		return text + " has no such object"
	}
	const most = 300
	if file := f.at.File; len(file) <= most {
		text += ": " + file
	} else {
		text += ": ..." + strings.ToValidUTF8(file[len(file)-most:], "")
	}
	if commit != "" {
		text += " of " + DescribeRevision(commit)
	}
	return text
}

// newOverridePolicy returns the policy of the rules for the object.
func (t *template) newOverridePolicy(s *v1alpha1.Source, rules []v1alpha1.RuleWithCluster) *unstructured.Unstructured {
	spec := v1alpha1.OverrideSpec{
		ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: schema.GroupVersion{Group: t.key.Group, Version: versionOf(t.hubForm().fields)}.String(), Kind: t.key.Kind, Namespace: t.key.Namespace, Name: t.key.Name}},
		AppliedRules:      v1alpha1.AppliedRulesFirst, OverrideRules: rules,
	}
	meta := metav1.ObjectMeta{Name: overridePolicyName(s, t.key), Namespace: t.key.Namespace, Labels: map[string]string{v1alpha1.LabelSource: s.Name}}
	if !t.needsClusterPolicy() {
		return withLowestPriority(newPolicyObject(&v1alpha1.OverridePolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindOverridePolicy}, ObjectMeta: meta, Spec: spec,
		}))
	}
	meta.Namespace = ""
	return withLowestPriority(newPolicyObject(&v1alpha1.ClusterOverridePolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindClusterOverridePolicy}, ObjectMeta: meta, Spec: v1alpha1.ClusterOverrideSpec{OverrideSpec: spec},
	}))
}

// withLowestPriority states the priority 0, so that policies of people have the last word. The API's default is another one, and
// the type leaves 0 out.
func withLowestPriority(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.Object["spec"].(map[string]any)["priority"] = int64(0)
	return u
}

// The kinds of policies that a Source makes of its variants.
const (
	kindOverridePolicy        = "OverridePolicy"
	kindClusterOverridePolicy = "ClusterOverridePolicy"
)

// needsClusterPolicy reports whether only a ClusterOverridePolicy may change the object.
func (t *template) needsClusterPolicy() bool {
	return t.key.Namespace == "" || overrides.RequiresClusterOverridePolicy(schema.GroupKind{Group: t.key.Group, Kind: t.key.Kind})
}

func versionOf(fields map[string]any) string {
	text, _ := fields["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(text)
	if err != nil {
		return text
	}
	return gv.Version
}

// overridePolicyName returns the name of the policy for an object. Names of ClusterOverridePolicies are of all namespaces.
func overridePolicyName(s *v1alpha1.Source, k Key) string {
	return overridePrefix(s.Name) + atoll.HashParts([]byte(s.Namespace), []byte(s.Name), []byte(k.Group), []byte(k.Kind), []byte(k.Namespace), []byte(k.Name))[:overrideHashLength]
}

// NamePolicy returns the name of the policy of the variants for an object of an inventory, if there is such a policy.
func NamePolicy(s *v1alpha1.Source, o v1alpha1.SourceObject) string {
	return overridePolicyName(s, KeyOf(o))
}

// overrideHashLength is the length of the hash in the name of a policy for an object.
const overrideHashLength = 12

func overridePrefix(source string) string { return "source-" + source + "-" }

// IsOverridePolicy reports whether an object is a policy that the Source makes of its variants.
func IsOverridePolicy(source string, o v1alpha1.SourceObject) bool {
	hash, ok := strings.CutPrefix(o.Name, overridePrefix(source))
	return ok && KeyOf(o).Group == v1alpha1.GroupVersion.Group && (o.Kind == kindOverridePolicy || o.Kind == kindClusterOverridePolicy) &&
		len(hash) == overrideHashLength && strings.Trim(hash, "0123456789abcdef") == ""
}

// releasePolicies removes policies of variants whose objects do not stay, whatever keeps other objects: without its policy, an
// object is nowhere removed. The policy of an object that stays does so, too.
func (d *Decision) releasePolicies(s *v1alpha1.Source) {
	kept := map[string]bool{}
	for _, o := range d.Keep {
		kept[overridePolicyName(s, KeyOf(o))] = true
	}
	isReleased := func(o v1alpha1.SourceObject) bool { return IsOverridePolicy(s.Name, o) && !kept[o.Name] }
	for _, o := range d.Keep {
		if isReleased(o) {
			o.Kept = ""
			d.Remove = append(d.Remove, o)
		}
	}
	d.Keep = slices.DeleteFunc(d.Keep, isReleased)
	rank := func(o v1alpha1.SourceObject) int {
		if IsOverridePolicy(s.Name, o) {
			return 1 // after its object, which would go to every cluster for a moment otherwise
		}
		return 0
	}
	slices.SortStableFunc(d.Remove, func(a, b v1alpha1.SourceObject) int { return cmp.Compare(rank(a), rank(b)) })
}

// Transition is a policy of a variant that is valid for what the hub has of an object, and for what the content has of it. It
// stands while both are replaced, so that no cluster gets the new object with the old policy.
type Transition struct {
	// Template is the index of the object.
	Template int
	// Policy is the index of the policy that the content has; -1 where it has none any more.
	Policy   int
	Object   *unstructured.Unstructured
	Resource schema.GroupVersionResource
}

// FitObjects fits the transition to the object on the hub. It takes what the Source has of that object, and the content has not
// got, out of what the clusters of variants get: the policy before may have done so, too. It leaves out what that object and the
// wanted one have alike, so that the policy is no larger than what differs.
func (t *Transition) FitObjects(existing, wanted *unstructured.Unstructured, manager string) {
	former := map[string]any{}
	for _, m := range existing.GetManagedFields() {
		if m.Manager != manager || m.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) == nil {
			former = ownedMaps(fields)
		}
	}
	former = formerFields(former, existing)
	rules, _, _ := unstructured.NestedSlice(t.Object.Object, "spec", "overrideRules")
	for _, r := range rules {
		does, _ := r.(map[string]any)["overriders"].(map[string]any)
		if does == nil || does["notHere"] != nil {
			continue
		}
		patch, _ := does["mergePatch"].(map[string]any)
		delete(does, "mergePatch")
		if patch = trimPatch(dropAbsent(patch, former, "metadata"), existing.Object, wanted.Object); len(patch) > 0 {
			does["mergePatch"] = patch
		}
	}
	if err := unstructured.SetNestedSlice(t.Object.Object, rules, "spec", "overrideRules"); err != nil {
		panic(fmt.Sprintf("changes: the rules of a policy: %v", err))
	}
}

// FindTransitions returns the transitions that an apply needs: those of objects that the inventory has, and that change together
// with the policy of their variants.
func (t *Templates) FindTransitions(s *v1alpha1.Source, d Decision) (out []Transition) {
	before := make(map[Key]v1alpha1.SourceObject, len(s.Status.Inventory))
	for _, o := range s.Status.Inventory {
		before[KeyOf(o)] = o
	}
	applied := make(map[Key]int, len(d.Apply))
	for _, i := range d.Apply {
		applied[KeyOf(t.Keys[i])] = i
	}
	for i := range t.templates {
		one := &t.templates[i]
		old := before[one.key]
		if _, changes := applied[one.key]; !changes || old.Hash == "" || old.Hash == t.Keys[i].Hash {
			continue
		}
		rules := one.newRules(s, "", newTransitionPatch)
		if len(rules) == 0 {
			continue
		}
		policy := one.newOverridePolicy(s, rules)
		key := PolicyKey(policy)
		at, stays := applied[key]
		if !stays {
			at = -1
		}
		isRemoved := slices.ContainsFunc(d.Remove, func(o v1alpha1.SourceObject) bool { return KeyOf(o) == key })
		if stays && before[key].Hash != t.Keys[at].Hash || isRemoved {
			out = append(out, Transition{Template: i, Policy: at, Object: policy, Resource: overrideResource(policy.GetKind())})
		}
	}
	return out
}

// PolicyKey returns the key of a policy of a Source.
func PolicyKey(u *unstructured.Unstructured) Key {
	return Key{v1alpha1.GroupVersion.Group, u.GetKind(), u.GetNamespace(), u.GetName()}
}

func overrideResource(kind string) schema.GroupVersionResource {
	if kind == kindClusterOverridePolicy {
		return v1alpha1.GroupVersion.WithResource("clusteroverridepolicies")
	}
	return v1alpha1.GroupVersion.WithResource("overridepolicies")
}

// ExcludesMore reports whether a policy excludes its object from clusters of a target of which another one, or nil, does not.
func ExcludesMore(existing, policy *unstructured.Unstructured) bool {
	was := listExclusions(existing)
	return slices.ContainsFunc(listExclusions(policy), func(target any) bool {
		return !slices.ContainsFunc(was, func(had any) bool { return userfields.EqualJSON(had, target) })
	})
}

// listExclusions returns the targets of the rules of a policy that exclude its object.
func listExclusions(policy *unstructured.Unstructured) (targets []any) {
	if policy == nil {
		return nil
	}
	rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "overrideRules")
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		if excludes, _, _ := unstructured.NestedBool(rule, "overriders", "notHere"); excludes {
			targets = append(targets, rule["targetCluster"])
		}
	}
	return targets
}

// newPolicyObject returns a policy as it is applied, without fields that are empty.
func newPolicyObject(p runtime.Object) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		panic(fmt.Sprintf("changes: a policy cannot be converted: %v", err))
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: fields}
}
