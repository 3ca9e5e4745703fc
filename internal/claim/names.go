package claim

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

const (
	suffixDigits = 10
	longestName  = 200
)

// suffixed tells names that look as if they had a suffix of ours; they get one too,
// so that no policy's name is ever another one's Bundle.
var suffixed = regexp.MustCompile(`-[0-9a-f]{10}$`)

// BundleFor gives the Bundle that an object goes into under a candidate, and the
// group that tells it from the candidate's other Bundles there.
func BundleFor(c Candidate, sub Subject) (BundleID, string) {
	group := ""
	switch {
	case c.level >= levelNamespace:
	case c.Spec.GroupBy.Type == v1alpha1.GroupByObject:
		group = objectName(sub.Key)
	case c.Spec.GroupBy.Type == v1alpha1.GroupByLabel:
		group = sub.Labels[c.Spec.GroupBy.LabelKey]
	}
	return BundleID{Namespace: sub.Key.Namespace, Name: bundleName(c.Source, group, sub.Key)}, group
}

func objectName(key atoll.ItemKey) string { return key.Kind + "." + key.Group + "/" + key.Name }

func bundleName(src v1alpha1.BundleSource, group string, key atoll.ItemKey) string {
	switch src.Kind {
	case v1alpha1.SourcePropagationPolicy:
		if group == "" && len(src.Name) <= longestName && !suffixed.MatchString(src.Name) {
			return src.Name
		}
	case v1alpha1.SourceAnnotation:
		group = objectName(key)
	}
	name := src.Name
	if src.Kind == v1alpha1.SourceAnnotation {
		name = strings.ToLower(key.Kind) + "-" + name
	}
	// Names of RBAC objects may hold what names of Bundles may not.
	name = strings.Trim(invalid.ReplaceAllString(strings.ToLower(name), "-"), "-")
	name = name[:min(len(name), longestName)]
	return name + "-" + atoll.Hash([]byte(src.Kind), []byte(src.Name), []byte(group))[:suffixDigits]
}

var invalid = regexp.MustCompile(`[^a-z0-9-]+`)

// Compare orders by namespace, then name.
func (id BundleID) Compare(other BundleID) int {
	return cmp.Or(strings.Compare(id.Namespace, other.Namespace), strings.Compare(id.Name, other.Name))
}
