package policymatch

import (
	"cmp"
	"regexp"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// BundleID names a Bundle, or, without a namespace, a ClusterBundle.
type BundleID struct{ Namespace, Name string }

func (id BundleID) String() string { return id.Namespace + "/" + id.Name }

// OwnNamespace returns the key of the Bundle's namespace; zero for a ClusterBundle.
func (id BundleID) OwnNamespace() atoll.ItemKey {
	if id.Namespace == "" {
		return atoll.ItemKey{}
	}
	return atoll.NamespaceKey(id.Namespace)
}

const (
	suffixDigits  = 10
	maxNameLength = 200
)

// suffixPattern matches policy names that end like a generated suffix. They get a suffix too, so
// that no policy's name is the Bundle of another policy.
var suffixPattern = regexp.MustCompile(`-[0-9a-f]{10}$`)

// BundleForSubject returns the Bundle that an object belongs to under a candidate, and the group
// that separates it from the candidate's other Bundles there.
func BundleForSubject(c Candidate, sub Subject) (BundleID, string) {
	group := ""
	switch c.Spec.GroupBy.Type {
	case v1alpha1.GroupByObject:
		group = objectName(sub.Key)
	case v1alpha1.GroupByLabel:
		group = sub.Labels[c.Spec.GroupBy.LabelKey]
	}
	return BundleID{Namespace: sub.Key.Namespace, Name: bundleName(c.Source, group, sub.Key)}, group
}

// IsSingleObjectBundle reports whether the Bundle of a source and a group is one object, with what that needs. A
// label's value, the other kind of group, has no slash.
func IsSingleObjectBundle(src v1alpha1.BundleSource, group string) bool {
	return src.Kind == v1alpha1.SourceAnnotation || strings.Contains(group, "/")
}

// IsBundleOfAnnotation reports whether the Bundle is the one of the object's own annotation.
func IsBundleOfAnnotation(id BundleID, key atoll.ItemKey) bool {
	return id.Name == bundleName(v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: key.Name}, "", key)
}

func objectName(key atoll.ItemKey) string { return key.Kind + "." + key.Group + "/" + key.Name }

func bundleName(src v1alpha1.BundleSource, group string, key atoll.ItemKey) string {
	switch src.Kind {
	case v1alpha1.SourcePropagationPolicy:
		if group == "" && len(src.Name) <= maxNameLength && !suffixPattern.MatchString(src.Name) {
			return src.Name
		}
	case v1alpha1.SourceAnnotation:
		group = objectName(key)
	}
	name := src.Name
	switch src.Kind {
	case v1alpha1.SourceAnnotation:
		name = strings.ToLower(key.Kind) + "-" + name
	case v1alpha1.SourceHubSettings:
		name = "default"
	}
	// Names of RBAC objects may hold characters that names of Bundles may not.
	name = strings.Trim(invalidNameChars.ReplaceAllString(strings.ToLower(name), "-"), "-")
	name = name[:min(len(name), maxNameLength)]
	return name + "-" + atoll.HashParts([]byte(src.Kind), []byte(src.Name), []byte(group))[:suffixDigits]
}

var invalidNameChars = regexp.MustCompile(`[^a-z0-9-]+`)

// Compare orders by namespace, then name.
func (id BundleID) Compare(other BundleID) int {
	return cmp.Or(strings.Compare(id.Namespace, other.Namespace), strings.Compare(id.Name, other.Name))
}
