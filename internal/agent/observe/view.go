package observe

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
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
	// HookRun is the run of a hook for which it was made; empty: none.
	HookRun string
	// Owned is a hash over Atoll's fields; it changes when another manager takes one.
	Owned string
	// Fields that are ours, as the API server reports them. Read-only.
	Fields json.RawMessage
	// Others are the managers of the other fields, newest last.
	Others []string
	// Deleting: deletion began; Finalizers hold it up.
	Deleting   bool
	Finalizers []string
	// Controlled: another object controls it.
	Controlled bool
	Health     atoll.Health
	Reason     atoll.Reason
	Message    string
	Reflected  json.RawMessage
	// Finished: it ran to completion.
	Finished bool
	// CompletionUnknown: a rule defines when it ran to completion, and cannot be evaluated now.
	CompletionUnknown bool
	// Feedback has the values that rules of the policy name.
	Feedback []atoll.FeedbackValue
	// RulesID is of the rules by which the object was judged; empty without rules.
	RulesID string
	// Edit changes with everything but the status. Only watches of all objects of a kind set it.
	Edit string
}

// EditFingerprintOf returns the Edit of an object. The generation stands for the spec of kinds that have one.
func EditFingerprintOf(obj *unstructured.Unstructured) string {
	if obj.GetGeneration() != 0 {
		return EditFingerprintOfMetadata(obj)
	}
	content := maps.Clone(obj.Object)
	delete(content, "status")
	meta := maps.Clone(obj.Object["metadata"].(map[string]any))
	delete(meta, "managedFields")
	delete(meta, "resourceVersion")
	content["metadata"] = meta
	return atoll.HashJSON(content)
}

// EditFingerprintOfMetadata returns the Edit of an object of which the metadata alone are watched. Without a generation
// it changes with each version.
func EditFingerprintOfMetadata(m metav1.Object) string {
	if m.GetGeneration() == 0 {
		return m.GetResourceVersion()
	}
	return strconv.FormatInt(m.GetGeneration(), 10) + " " + atoll.HashJSON([]any{m.GetLabels(), m.GetAnnotations(), m.GetFinalizers(), m.GetOwnerReferences(), m.GetDeletionTimestamp()})
}

// Judges are what judges an object in the member.
type Judges struct {
	// Interpreters of the object's Bundle.
	Interpreters script.Interpreters
	// Rules of the object's item; nil: there are none.
	Rules *assess.Rules
}

// ForReportTime returns the judges with the time of the report, in Unix seconds.
func (j Judges) ForReportTime(now int64) Judges {
	j.Interpreters = j.Interpreters.ForReportTime(now)
	return j
}

// ViewOf returns the view of an object, judged by the judges.
func ViewOf(obj *unstructured.Unstructured, judges Judges) View {
	gvk := obj.GroupVersionKind()
	v := viewFromMetadata(obj, gvk.Group, gvk.Kind)
	v.Finished = kinds.HasFinished(obj)
	if v.Key.IsSecret() {
		judges.Rules = nil
	}
	done, failed := judges.Rules.HasCompleted(obj.Object)
	if judges.Rules.StatesCompletion() {
		v.Finished = done
	}
	j := judges.Interpreters.ReportState(withoutDeletionIfFinished(obj, v))
	v.Health, v.Reason, v.Message, v.Reflected = j.Health, atoll.Reason(j.Reason), j.Message, j.Reflected
	judged := judges.Rules.JudgeObject(obj.Object, assess.Verdict{Health: v.Health, Reason: v.Reason, Message: v.Message, Finished: v.Finished},
		assess.ObjectState{Deleting: v.Deleting && !v.Finished, Outdated: kinds.HasOutdatedStatus(obj)}, failed)
	v.Health, v.Reason, v.Message, v.Finished, v.CompletionUnknown = judged.Health, judged.Reason, judged.Message, judged.Finished, judged.CompletionUnknown
	v.Feedback, v.RulesID = judges.Rules.ReadFeedback(obj.Object), judges.Rules.ID()
	return v
}

// withoutDeletionIfFinished is the object as it ended: what ran to completion keeps its result
// while it is being deleted.
func withoutDeletionIfFinished(obj *unstructured.Unstructured, v View) *unstructured.Unstructured {
	if !v.Finished || !v.Deleting {
		return obj
	}
	ended := obj.DeepCopy()
	ended.SetDeletionTimestamp(nil)
	return ended
}

// ViewByExistence is the View of an object of a kind whose health is that it exists.
func ViewByExistence(m metav1.Object, group, kind string) View {
	v := viewFromMetadata(m, group, kind)
	v.Health = atoll.Healthy
	if v.Deleting {
		v.Health, v.Reason, v.Message = atoll.Progressing, atoll.ReasonTerminating, "the object is being deleted"
	}
	return v
}

func viewFromMetadata(m metav1.Object, group, kind string) View {
	labels := m.GetLabels()
	v := View{
		Key:        atoll.ItemKey{Group: group, Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName()},
		UID:        string(m.GetUID()),
		Version:    m.GetResourceVersion(),
		Label:      labels[atoll.LabelBundleUID],
		Template:   labels[ownership.LabelTemplateUID],
		HookRun:    labels[ownership.LabelHookRun],
		Adopted:    labels[ownership.LabelAdopted] != "",
		Deleting:   m.GetDeletionTimestamp() != nil,
		Finalizers: m.GetFinalizers(),
		Controlled: metav1.GetControllerOfNoCopy(m) != nil,
	}
	if u, ok := m.(*unstructured.Unstructured); ok {
		v.addManagersOf(u)
		return v
	}
	for _, f := range m.GetManagedFields() {
		v.addManager(&f, func() json.RawMessage { return normalizeManagedFields(f.FieldsV1) })
	}
	return v
}

// addManager adds an entry of managedFields. fields returns the fields of the entry, in an order that does not depend on
// how they came; it is called for Atoll's entry alone.
func (v *View) addManager(f *metav1.ManagedFieldsEntry, fields func() json.RawMessage) {
	switch {
	case IsAtollApplyEntry(f):
		v.Fields = fields()
		v.Owned = atoll.HashParts(v.Fields)
	case f.Subresource != "status" && f.Manager != atoll.HandoverManager:
		v.Others = append(v.Others, f.Manager)
	}
}

// addManagersOf adds the entries of an object that is decoded already. GetManagedFields would encode and decode the
// fields of each entry, which is most of the cost of a view. A malformed entry leaves none, as in GetManagedFields.
func (v *View) addManagersOf(u *unstructured.Unstructured) {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	entries, _ := list.([]any)
	for _, entry := range entries {
		e, wellFormed := entry.(map[string]any)
		text := func(field string) string {
			s, isText := e[field].(string)
			wellFormed = wellFormed && (isText || e[field] == nil)
			return s
		}
		f := metav1.ManagedFieldsEntry{Manager: text("manager"), Operation: metav1.ManagedFieldsOperationType(text("operation")), Subresource: text("subresource")}
		if !wellFormed {
			v.Fields, v.Owned, v.Others = nil, "", nil
			return
		}
		v.addManager(&f, func() json.RawMessage { return encodeFields(e["fieldsV1"]) })
	}
}

// encodeFields returns decoded fields as JSON; nil where there are none.
func encodeFields(fields any) json.RawMessage {
	if fields == nil {
		return nil
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return out
}

// IsAtollApplyEntry reports whether an entry of managedFields has the fields that Atoll applied.
func IsAtollApplyEntry(f *metav1.ManagedFieldsEntry) bool {
	return f.Manager == atoll.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
}

// normalizeManagedFields returns the fields in an order that does not depend on how they came.
func normalizeManagedFields(f *metav1.FieldsV1) json.RawMessage {
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

// LostFields lists the fields that are in before and not in after, in dotted form, at
// most limit of them.
func LostFields(before, after json.RawMessage, limit int) []string {
	var x, y map[string]any
	if json.Unmarshal(before, &x) != nil || len(after) > 0 && json.Unmarshal(after, &y) != nil {
		return nil
	}
	var out []string
	collectLostFields(x, y, "", &out)
	slices.Sort(out)
	if len(out) > limit {
		out = out[:limit]
	}
	return out
}

func collectLostFields(x, y map[string]any, path string, out *[]string) {
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
			collectLostFields(sub, other, at, out)
		case !there:
			*out = append(*out, strings.TrimPrefix(at, "."))
		}
	}
}

// NeedsOnlyMetadata reports whether only metadata of the kind matters where no script reads more:
// its status has no meaning.
func NeedsOnlyMetadata(group, kind string) bool {
	return kinds.IsHealthyByExistence(schema.GroupKind{Group: group, Kind: kind})
}
