package changes

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/objectdiff"
)

// goneObject is the hash of the fields of an object that does not exist, and allowedPrefix begins the drift of an object whose
// differences are allowed.
const goneObject, allowedPrefix = "gone", "allowed-"

// UnreadObject is the drift of an object that could not be read.
const UnreadObject = "unread"

// IsDrifted reports whether an object differs from what the Source applied, in a way that is not allowed.
func IsDrifted(o v1alpha1.SourceObject) bool {
	return o.Drift != "" && !strings.HasPrefix(o.Drift, allowedPrefix)
}

// CountDrifted counts the objects of an inventory that differ from what the Source applied.
func CountDrifted(inventory []v1alpha1.SourceObject) (n int32) {
	for _, o := range inventory {
		if IsDrifted(o) {
			n++
		}
	}
	return n
}

// HashOwnedFields returns a hash of which fields a manager applied of an object. The API server takes a field from its manager when
// another one writes another value, so the hash changes when another one changes or removes a field.
func HashOwnedFields(object *unstructured.Unstructured, manager string) string {
	if object == nil {
		return goneObject
	}
	var owned []any
	entries, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "managedFields")
	list, _ := entries.([]any)
	for _, e := range list {
		entry, _ := e.(map[string]any)
		if entry["manager"] == manager && entry["operation"] == string(metav1.ManagedFieldsOperationApply) {
			owned = append(owned, entry["fieldsV1"])
		}
	}
	return atoll.HashJSON(owned)[:16]
}

// HasDriftChanged reports whether an object that the Source applied has changed in a way that was not considered yet. object is as
// the hub has it, and nil when it does not exist.
func HasDriftChanged(o v1alpha1.SourceObject, object *unstructured.Unstructured, manager string) bool {
	if o.Fields == "" || o.Hash == "" || o.Kept != "" {
		return false // it is not applied, or was applied by a hub that recorded no fields
	}
	now := HashOwnedFields(object, manager)
	if o.Drift != "" {
		return now != strings.TrimPrefix(o.Drift, allowedPrefix)
	}
	return now != o.Fields
}

// IsChangedByOthers reports whether an object differs from what the Source applied, allowed differences included. An object that an earlier
// hub applied counts as changed, because its fields are not known.
func IsChangedByOthers(o v1alpha1.SourceObject, object *unstructured.Unstructured, manager string) bool {
	return o.Drift != "" || HashOwnedFields(object, manager) != o.Fields
}

// ObjectDrift is how an object on the hub differs from what a Source applies.
type ObjectDrift struct {
	// IsGone is true for an object that does not exist.
	IsGone bool
	// Fields that differ and that no entry of spec.drift.allow allows, with the other managers of these fields.
	Fields   []objectdiff.Difference
	Managers []string
	// Allowed are the other fields that differ.
	Allowed []objectdiff.Difference
}

// IsDrifted reports whether the object differs in a way that is not allowed.
func (d *ObjectDrift) IsDrifted() bool { return d.IsGone || len(d.Fields) > 0 }

// MarkEntry notes in an entry of the inventory what a comparison found. hash is that of the fields that the object has now.
func (d *ObjectDrift) MarkEntry(o *v1alpha1.SourceObject, hash string) {
	switch {
	case d.IsDrifted():
		o.Drift = hash
	case len(d.Allowed) > 0:
		o.Drift = allowedPrefix + hash
	default:
		o.Fields, o.Drift = hash, ""
	}
}

// FindDrift compares an object on the hub with the answer of a dry run that applies it as the content has it, and takes each field
// over.
func FindDrift(s *v1alpha1.Source, key Key, live, applied *unstructured.Unstructured) ObjectDrift {
	var d ObjectDrift
	managers, own := objectdiff.ManagersOf(live), FieldManagerOf(s)
	for _, difference := range objectdiff.Compare(TemplateFields(live), TemplateFields(applied)) {
		// The Source can own other elements of a list.
		by := slices.DeleteFunc(managers.OfField(difference.Path), func(m string) bool { return m == own })
		if isAllowed(s.Spec.AllowedDrifts(), key, difference.Path, by) || isScaled(live, managers, difference.Path) {
			d.Allowed = append(d.Allowed, difference)
			continue
		}
		d.Fields = append(d.Fields, difference)
		d.Managers = append(d.Managers, by...)
	}
	slices.Sort(d.Managers)
	d.Managers = slices.Compact(d.Managers)
	return d
}

// TemplateFields returns a copy of what users write of an object on the hub, without what the API server sets, and without its status.
// Labels of Atoll are in it, because they place the object.
func TemplateFields(u *unstructured.Unstructured) map[string]any {
	c := &unstructured.Unstructured{Object: objectdiff.WithoutServerFields(u)}
	c.SetLabels(u.GetLabels())
	return c.Object
}

// isAllowed reports whether an entry allows a difference: by its path, or because it has each manager of the field.
func isAllowed(allowed []v1alpha1.AllowedDrift, key Key, path string, managers []string) bool {
	return slices.ContainsFunc(allowed, func(a v1alpha1.AllowedDrift) bool {
		if a.Kind != "" && a.Kind != key.Kind || a.Name != "" && a.Name != key.Name {
			return false
		}
		isAt := func(p string) bool { return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/") }
		isForeign := func(m string) bool { return !slices.Contains(a.Managers, m) }
		return slices.ContainsFunc(a.Paths, isAt) || len(managers) > 0 && !slices.ContainsFunc(managers, isForeign)
	})
}

// isScaled reports whether a path is the number of replicas, and the subresource scale set it. The API server records no owner for a
// scale to zero.
func isScaled(live *unstructured.Unstructured, managers objectdiff.Managers, path string) bool {
	at := []string{"spec", "replicas"}
	if _, of, ok := kinds.ReplicasOf(live); ok {
		at = of
	}
	if path != jsonpointer.FormatPointer(at...) {
		return false
	}
	by := managers.SubresourcesOfField(path)
	return len(by) == 0 || slices.Contains(by, "scale")
}

// KeepAllowed returns a form of an object with the values that the hub has in the fields that are allowed to differ. The form is not
// changed.
func (d *ObjectDrift) KeepAllowed(form *unstructured.Unstructured) *unstructured.Unstructured {
	if len(d.Allowed) == 0 {
		return form
	}
	out := form.DeepCopy()
	for _, difference := range d.Allowed {
		objectdiff.KeepBefore(out.Object, difference)
	}
	return out
}

// MarkApplied notes in an entry of the inventory that the object was applied with the values of the fields that are allowed to differ.
func (d *ObjectDrift) MarkApplied(o *v1alpha1.SourceObject) {
	if len(d.Allowed) > 0 {
		o.Drift = allowedPrefix + o.Fields
	}
}

// FindRival returns the field manager of another Source that wrote a field that differs; empty when none did. Two Sources that correct
// each other would write for ever.
func (d *ObjectDrift) FindRival() string {
	i := slices.IndexFunc(d.Managers, func(m string) bool { return strings.HasPrefix(m, sourceManagerPrefix) })
	if i < 0 {
		return ""
	}
	return d.Managers[i]
}
