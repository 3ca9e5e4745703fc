package preview

import (
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/objectdiff"
)

// FieldChange that would change.
type FieldChange struct {
	// Path of the field, a JSON Pointer.
	Path string `json:"path"`
	// Before and After; nil where the field is not there.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
	// Hidden: the values are a Secret's and not shown.
	Hidden bool `json:"hidden,omitempty"`
	// MemberOwned: the field belongs to the member, so that only a new object gets the value.
	MemberOwned bool `json:"memberOwned,omitempty"`
}

// maxFields of an item are listed.
const maxFields = 200

func changedFields(was, now *atoll.RenderedItem) (out []FieldChange) {
	var before, after map[string]any
	if utiljson.Unmarshal(was.Object, &before) != nil || utiljson.Unmarshal(now.Object, &after) != nil {
		return nil
	}
	for _, d := range objectdiff.Compare(before, after) {
		if len(out) == maxFields {
			break
		}
		out = append(out, FieldChange{Path: d.Path, Before: d.Before, After: d.After})
	}
	for i := range out {
		out[i].MemberOwned = slices.ContainsFunc(now.MemberOwned, func(path string) bool {
			return out[i].Path == path || strings.HasPrefix(out[i].Path, path+"/")
		})
	}
	if now.Key.IsSecret() {
		for i := range out {
			out[i].Before, out[i].After, out[i].Hidden = nil, nil, true
		}
	}
	return out
}

// missingFrom returns the paths that are not in the others.
func missingFrom(paths, others []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return slices.Contains(others, path) })
}

// isHandledOtherwise reports whether a member handles an item of the same hash in another way.
func isHandledOtherwise(was, now *atoll.RenderedItem) bool {
	return was.ConflictResolution != now.ConflictResolution || was.Wave != now.Wave || was.Hook.ID() != now.Hook.ID() || was.Assessment.ID() != now.Assessment.ID()
}

// changeOfItem returns the change of an item that is new, with nil for was, or of another hash.
func changeOfItem(was, now *atoll.RenderedItem) ItemChange {
	out := ItemChange{Key: now.Key, Change: ChangeChanged, Observe: now.Observe}
	if was == nil {
		out.Change, out.ServiceAccountAfter = ChangeAdded, now.ServiceAccount
		out.WaveAfter, out.HookAfter = now.Wave, now.Hook.Text()
	}
	switch {
	case now.Failed():
		out.Error, out.ErrorReason = now.Error, now.ErrorReason
	case was != nil:
		if was.ConflictResolution != now.ConflictResolution {
			out.ConflictBefore, out.ConflictAfter = was.ConflictResolution, now.ConflictResolution
		}
		if was.ServiceAccount != now.ServiceAccount {
			out.ServiceAccountBefore, out.ServiceAccountAfter = was.ServiceAccount, now.ServiceAccount
		}
		if was.Wave != now.Wave {
			out.WaveBefore, out.WaveAfter = was.Wave, now.Wave
		}
		if was.Hook.Text() != now.Hook.Text() {
			out.HookBefore, out.HookAfter = was.Hook.Text(), now.Hook.Text()
		}
		out.Reassessed = was.Assessment.ID() != now.Assessment.ID()
		out.Recreate = now.Recreate && was.Hash != now.Hash
		out.Fields, out.Written = changedFields(was, now), was.Observe != "" && now.Observe == ""
		out.Released, out.Corrected = missingFrom(now.MemberOwned, was.MemberOwned), missingFrom(was.MemberOwned, now.MemberOwned)
	}
	return out
}
