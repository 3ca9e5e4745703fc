package history

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

// Step is what the undo of an edit writes over the present object. Patches are texts, so that clients without whole
// numbers beyond 2^53 pass them on unchanged.
type Step struct {
	Change Change `json:"change"`
	// Patch is a merge patch of exactly the present version; empty: the object is already as it was.
	Patch string `json:"patch,omitempty"`
	// Fields are the first differences, and MoreFields counts the others.
	Fields     []StepField `json:"fields,omitempty"`
	MoreFields int         `json:"moreFields,omitempty"`
	// Manager is the field manager of the write. Applies: it applies on the server, and can own again what it writes.
	Manager string `json:"manager"`
	Applies bool   `json:"applies,omitempty"`
	// Owners is the patch of the owners of fields after the write; empty: they stay as they are.
	Owners string `json:"owners,omitempty"`
}

// StepField is a field that the undo changes; a missing value is null.
type StepField struct {
	Path   string `json:"path"`
	Before any    `json:"before"`
	After  any    `json:"after"`
}

// maxStepFields of a step are listed.
const maxStepFields = 40

// NewStep returns what the undo writes over the present object. live is the object after the write; nil: before it.
func (t *Target) NewStep(present, live map[string]any) (Step, error) {
	m := t.ChooseManager()
	s := Step{Change: t.Change, Manager: m.Name, Applies: m.Applies}
	if live != nil {
		owners := JoinOwnership(t.ManagedFields, managedFieldsOf(present), managedFieldsOf(live), m)
		if owners == nil {
			return s, nil
		}
		u := unstructured.Unstructured{Object: live}
		raw, err := EncodeOwners(u.GetResourceVersion(), owners)
		s.Owners = string(raw)
		return s, err
	}
	wanted := t.Revert(present)
	if CompareFields(present, wanted) == nil {
		return s, nil
	}
	var list []objectdiff.Difference
	list, s.MoreFields = ListDifferences(present, wanted, maxStepFields)
	for _, d := range list {
		s.Fields = append(s.Fields, StepField(d))
	}
	u := unstructured.Unstructured{Object: present}
	raw, err := EncodePatch(present, wanted, map[string]any{"uid": string(u.GetUID()), "resourceVersion": u.GetResourceVersion()})
	s.Patch = string(raw)
	return s, err
}

// IsOfFormerObject reports whether the change is of a former object of the name, of which no deletion is kept.
func (t *Target) IsOfFormerObject(presentUID string) bool {
	return t.Change.UID != "" && t.Change.UID != presentUID && !t.Whole
}

// ChooseManager returns the field manager that the object has its fields from.
func (t *Target) ChooseManager() Manager {
	m := UsualManager(t.ManagedFields, atoll.HubFieldManager, atoll.PlanManager)
	if m.Name == "" {
		m.Name = atoll.CLIFieldManager
	}
	return m
}

func managedFieldsOf(object map[string]any) []any {
	list, _, _ := unstructured.NestedSlice(object, "metadata", "managedFields")
	return list
}

// EncodePatch returns the merge patch from one object to another one, with fields of metadata that bind it. It keeps
// whole numbers beyond 2^53.
func EncodePatch(from, to, bound map[string]any) ([]byte, error) {
	patch := objectdiff.MergePatch(from, to)
	if len(bound) > 0 {
		meta, _ := patch["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		maps.Copy(meta, bound)
		patch["metadata"] = meta
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return raw, nil
}

// EncodeOwners returns the patch that writes the owners of fields of a version.
func EncodeOwners(resourceVersion string, owners []any) ([]byte, error) {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": resourceVersion, "managedFields": owners}})
	if err != nil {
		return nil, fmt.Errorf("encode the owners of fields: %w", err)
	}
	return raw, nil
}
