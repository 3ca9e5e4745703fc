package observe

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
)

// View of an object in the member.
type View struct {
	Key     atoll.ItemKey
	UID     string
	Version string // resourceVersion
	// Label is the UID of the Bundle that it carries.
	Label string
	// Template is the UID of the template that it was made for.
	Template string
	// Adopted: it was there before Atoll.
	Adopted bool
	// Owned is a hash over the fields that are ours; it changes when somebody
	// takes one away from us.
	Owned string
	// Fields that are ours, as the API server tells them. Read-only.
	Fields json.RawMessage
	// Others are the managers of the other fields, newest last.
	Others []string
	// Deleting: deletion began; Finalizers hold it up.
	Deleting   bool
	Finalizers []string
	// Controlled: another object controls it.
	Controlled bool
	Health     atoll.Health
	Reason     string
	Message    string
	Reflected  json.RawMessage
	// Finished: it ran to completion.
	Finished bool
}

// Of an object, judged by the interpreters.
func Of(obj *unstructured.Unstructured, known script.Interpreters) View {
	gvk := obj.GroupVersionKind()
	v := ofMeta(obj, gvk.Group, gvk.Kind)
	v.Finished = interpret.Finished(obj)
	j := known.Judge(outcome(obj, v))
	v.Health, v.Reason, v.Message, v.Reflected = j.Health, j.Reason, j.Message, j.Reflected
	return v
}

// outcome is the object as it ended: what ran to completion keeps its result
// while it is being deleted.
func outcome(obj *unstructured.Unstructured, v View) *unstructured.Unstructured {
	if !v.Finished || !v.Deleting {
		return obj
	}
	ended := obj.DeepCopy()
	ended.SetDeletionTimestamp(nil)
	return ended
}

// OfMeta is the View of an object of a kind whose health is that it exists.
func OfMeta(m metav1.Object, group, kind string) View {
	v := ofMeta(m, group, kind)
	v.Health = atoll.Healthy
	if v.Deleting {
		v.Health, v.Reason, v.Message = atoll.Progressing, "Terminating", "the object is being deleted"
	}
	return v
}

func ofMeta(m metav1.Object, group, kind string) View {
	v := View{
		Key:        atoll.ItemKey{Group: group, Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName()},
		UID:        string(m.GetUID()),
		Version:    m.GetResourceVersion(),
		Label:      m.GetLabels()[atoll.LabelBundleUID],
		Template:   m.GetLabels()[claims.LabelTemplateUID],
		Adopted:    m.GetLabels()[claims.LabelAdopted] != "",
		Deleting:   m.GetDeletionTimestamp() != nil,
		Finalizers: m.GetFinalizers(),
		Controlled: metav1.GetControllerOfNoCopy(m) != nil,
	}
	for _, f := range m.GetManagedFields() {
		switch {
		case f.Manager == atoll.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "":
			v.Fields = sorted(f.FieldsV1)
			v.Owned = atoll.Hash(v.Fields)
		case f.Subresource != "status" && f.Manager != atoll.HandoverManager:
			v.Others = append(v.Others, f.Manager)
		}
	}
	return v
}

// sorted gives the fields in an order that does not depend on how they came.
func sorted(f *metav1.FieldsV1) json.RawMessage {
	if f == nil {
		return nil
	}
	var any map[string]any
	if json.Unmarshal(f.GetRawBytes(), &any) != nil {
		return f.GetRawBytes()
	}
	out, err := json.Marshal(any)
	if err != nil {
		return f.GetRawBytes()
	}
	return out
}

// Lost lists the fields that are in before and not in after, in dotted form, at
// most limit of them.
func Lost(before, after json.RawMessage, limit int) []string {
	var x, y map[string]any
	if json.Unmarshal(before, &x) != nil || len(after) > 0 && json.Unmarshal(after, &y) != nil {
		return nil
	}
	var out []string
	lost(x, y, "", &out)
	slices.Sort(out)
	if len(out) > limit {
		out = out[:limit]
	}
	return out
}

func lost(x, y map[string]any, path string, out *[]string) {
	for k, v := range x {
		if k == "." {
			continue
		}
		name, isField := strings.CutPrefix(k, "f:")
		at := path + "." + name
		if !isField {
			at = path + "[" + name + "]"
		}
		sub, _ := v.(map[string]any)
		other, there := y[k].(map[string]any)
		switch {
		case len(sub) > 0:
			lost(sub, other, at, out)
		case !there:
			*out = append(*out, strings.TrimPrefix(at, "."))
		}
	}
}

// MetadataOnly tells whether only metadata of the kind matters where no script reads more: it
// has no status that says anything.
func MetadataOnly(group, kind string) bool {
	return interpret.ByExisting(schema.GroupKind{Group: group, Kind: kind})
}
